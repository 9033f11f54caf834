"""The exact rule of every protocol, in words: printed with its scores and kept in docs/evaluation.md."""

TAN = (
    "hit: floor(start) <= second <= ceil(end), both ends included; R@1 over alignable sentences, all videos pooled; "
    "ROC-AUC of alignable against not, over all sentences, by the alignability score or else the best score over the "
    "video; the first of equal seconds; a score of exactly 0 means not scored"
)
TAN_WINDOWS = TAN + "; seconds outside TAN's overlapping 64 s windows of a sentence do not count"
NASVA = (
    "hit: start <= second <= end, nothing rounded; R@1 over alignable sentences, all videos pooled; videos without an "
    "alignable sentence are left out"
)
NARRATION = (
    "positive: alignable and shown while it is said; ROC-AUC and average precision of the score `shown`, sentences of "
    "all videos pooled, ties count half"
)
HT_STEP = (
    "R@1: the second lies in [start, end] of any instance of the step, over steps with an instance, all videos pooled; "
    "mAP: interpolated AP at tIoU .3:.1:.7 over the segments of an activity WHATEVER their step, mean over activities "
    "and tIoU; label-aware: AP of each step, mean over the activity's steps, then the same"
)
EACH = (
    "the best second of each step by itself; hit: it lies in rows floor(start):ceil(end) without the last; recall of a "
    "task over its annotated steps, unweighted mean over tasks, mean over 20 test sets that leave 30 random videos a "
    "task out (seeds 0 to 19)"
)
ORDERED = "as each, but all steps of the task once and in order, by dynamic programming on -log softmax over steps"
ORDERED_SHARED = (
    "as ordered; videos without predictions are left out, and so are steps shown only after the last row of the scores"
)
EACH_ALL = "as each, but one test set of all annotated videos"
PLACED = (
    "of the texts that the video shows: R@1: the predicted second (a segment's middle) lies in [start, end) of any "
    "instance; Recall@IoU: the predicted segment overlaps an instance at least so much; mean IoU: the best overlap, 0 "
    "where nothing was predicted; texts of all videos pooled"
)
FOUND = (
    "texts not looked at: recall: share of reference spans that some predicted span overlaps at least so much (one may "
    "serve several); precision: the reverse; mean IoU: the best overlap of each reference span; all videos pooled"
)
DETECTED = (
    "ROC-AUC of shown against not, clips pooled, ties count half (scikit-learn); AP: sum of recall gained times "
    "precision, not interpolated"
)
FRAMES = (
    "frames above 0.5 are in; F of frames, mean over videos whose reference holds a frame; cut or filled with 0 to "
    "the reference's length; Kendall's tau-b and Spearman's rho of scores with the reference, 0 where all "
    "scores are equal"
)
FRAMES_OFFICIAL = (
    "frames above 0.5 are 1, the others keep their score; a reference without frames gives F = 1; only videos in both "
    "files; tau and rho left out where undefined"
)
DENSE = (
    "SODA a to d: one-to-one pairing that keeps the order, METEOR with the prediction as reference as officially, F1 "
    "of a video, mean over videos; densevid: metrics of all (prediction, reference) pairs with IoU >= .3, .5, .7, .9, "
    "video by video (METEOR's aggregate, CIDEr's idf), an unmatched prediction against one garbage word; precision and "
    "recall at IoU > tIoU; mean over videos, then tIoUs; an empty list scores 0"
)
DENSE_2018 = "as stepline, with densevid_eval 2018's garbage caption of several tokens; SODA over videos in both files"
DENSE_2021 = "as stepline, densevid_eval as PDVC's evaluate2021; SODA over videos in both files"
DENSE_VIDCHAPTERS = "as stepline, only videos in both files, as VidChapters and Vid2Seq score"
