"""The official way to score dense captions, for lab/captioning.py: pycocoevalcap's own
classes and Java.

The loops over videos follow the facts known of SODA and of densevid_eval 2018. Every metric and the
tokenizer are pycocoevalcap's.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from captioning_data import Videos
from pycocoevalcap.bleu.bleu import Bleu  # type: ignore[import-untyped]
from pycocoevalcap.cider.cider import Cider  # type: ignore[import-untyped]
from pycocoevalcap.meteor.meteor import Meteor  # type: ignore[import-untyped]
from pycocoevalcap.rouge.rouge import Rouge  # type: ignore[import-untyped]
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer  # type: ignore[import-untyped]

from stepline.evaluate.events import segment_iou, times
from stepline.evaluate.meteor import MeteorScores
from stepline.evaluate.ptb import only_ascii
from stepline.evaluate.soda import best_ordered_sum

Captions = dict[int, list[Any]]
UNMATCHED_CAPTION = "abc123!@#"  # what densevid_eval compares with where no event matches


class OfficialMeteor:
    """pycocoevalcap's METEOR behind our interface."""

    def __init__(self) -> None:
        self._meteor = Meteor()

    def compare(self, pairs: Sequence[tuple[Sequence[str], str]]) -> MeteorScores:
        """Return one score per pair, and the aggregate."""
        gold = {}
        predicted = {}
        for index, (references, hypothesis) in enumerate(pairs):
            gold[index] = list(references)
            predicted[index] = [hypothesis]
        aggregate, segments = self._meteor.compute_score(gold, predicted)
        return MeteorScores(tuple(segments), aggregate)


def tokenized(videos: Videos) -> Videos:
    """Return the events with the tokens of their captions."""
    lines = {}
    for video, events in videos.items():
        for index, (_, _, caption) in enumerate(events):
            lines[video, index] = [{"caption": only_ascii(caption)}]
    tokens = PTBTokenizer().tokenize(lines)
    with_tokens: Videos = {}
    for video, events in videos.items():
        with_tokens[video] = []
        for index, (start, end, _) in enumerate(events):
            with_tokens[video].append((start, end, tokens[video, index][0]))
    return with_tokens


def official_soda(references: Videos, predictions: Videos) -> float:
    """Return SODA_c's F1 with METEOR of every pair of a video, roles swapped. The pairing itself is
    ours."""
    references = tokenized(references)
    predictions = tokenized(predictions)
    meteor = OfficialMeteor()
    scores = []
    for video, events in references.items():
        gold = sorted(events, key=itemgetter(0))
        predicted = sorted(predictions[video], key=itemgetter(0))
        if not predicted:
            scores.append(0.0)
            continue
        iou = segment_iou(times(gold), times(predicted))
        pairs = []
        for _, _, gold_caption in gold:
            for _, _, caption in predicted:
                pairs.append(((caption,), gold_caption))
        similarity = np.array(meteor.compare(pairs).segments)
        worth = best_ordered_sum(iou * similarity.reshape(iou.shape))
        precision = worth / len(predicted)
        recall = worth / len(gold)
        score = 0.0
        if worth:
            score = 2 * precision * recall / (precision + recall)
        scores.append(score)
    return sum(scores) / len(scores)


def official_densevid(
    references: Videos, predictions: Videos, tious: Sequence[float]
) -> dict[str, float]:
    """Return densevid_eval 2018's caption metrics, means over videos and tIoUs."""
    scorers = {"METEOR": Meteor(), "CIDEr": Cider(), "BLEU": Bleu(4), "ROUGE-L": Rouge()}
    totals: dict[str, list[float]] = {}
    for tiou in tious:
        raw_gold, raw_predicted, owners = _items(references, predictions, tiou)
        gold = PTBTokenizer().tokenize(raw_gold)
        predicted = PTBTokenizer().tokenize(raw_predicted)
        for name, scorer in scorers.items():
            options = {"verbose": 0} if name == "BLEU" else {}
            for keys in owners.values():
                score = 0.0
                if keys:
                    gold_of_video = {key: gold[key] for key in keys}
                    predicted_of_video = {key: predicted[key] for key in keys}
                    score, _ = scorer.compute_score(gold_of_video, predicted_of_video, **options)
                _note(totals, name, score)
    return {name: sum(values) / len(values) for name, values in totals.items()}


def _note(totals: dict[str, list[float]], name: str, score: Any) -> None:
    if name != "BLEU":
        totals.setdefault(name, []).append(float(score))
        return
    scores = score if isinstance(score, list) else [score] * 4
    for size, value in enumerate(scores, start=1):
        totals.setdefault(f"BLEU-{size}", []).append(float(value))


def _items(
    references: Videos, predictions: Videos, tiou: float
) -> tuple[Captions, Captions, dict[str, list[int]]]:
    """Return gold and predicted captions by item, and each video's items."""
    gold: Captions = {}
    predicted: Captions = {}
    owners: dict[str, list[int]] = {}
    for video, events in references.items():
        keys = owners.setdefault(video, [])
        predicted_events = predictions[video]
        iou = segment_iou(times(predicted_events), times(events))
        for row, (_, _, text) in enumerate(predicted_events):
            columns = np.flatnonzero(iou[row] >= tiou)
            captions = [events[column][2] for column in columns]
            for caption in captions or [UNMATCHED_CAPTION]:
                key = len(gold)
                keys.append(key)
                gold[key] = [{"caption": only_ascii(caption)}]
                predicted[key] = [{"caption": only_ascii(text)}]
    return gold, predicted, owners
