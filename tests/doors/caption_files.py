"""Four videos of dense captions in PDVC's flat form, and predictions for three of them and for one
more."""

from stepline.datasets.predictions import PredictedSegment as Predicted

# id -> seconds, and (start, end, sentence)
VIDEOS = {
    "v_aaaaaaaaaa1": (
        90.5,
        (3, 20.5, "chop the onion finely"),
        (22, 41, "fry the onion in butter until it is soft"),
        (50.25, 80, "add rice, and stir"),
    ),
    "v_bbbbbbbbbb2": (
        60.0,
        (0, 30, "whisk 2 eggs with milk"),
        (30, 58, "pour the mix into a hot pan"),
    ),
    "v_cccccccccc3": (33.0, (5, 9, "season with salt and pepper")),
    "v_dddddddddd4": (40.0, (1, 11, "knead the dough"), (20, 35, "let it rest")),
}
TRUTH = {
    id: {
        "duration": seconds,
        "timestamps": [[start, end] for start, end, _ in rows],
        "sentences": [text for *_, text in rows],
    }
    for id, (seconds, *rows) in VIDEOS.items()
}
PREDICTED = {
    "v_aaaaaaaaaa1": [
        Predicted(2.0, 21.0, "chop the onions"),
        Predicted(21.5, 44.0, "fry it in butter until it is soft"),
        Predicted(48.0, 60.0, "add the rice to the pan and stir"),
        Predicted(61.0, 81.0, "stir"),
    ],
    "v_bbbbbbbbbb2": [
        Predicted(4.0, 28.0, "whisk the eggs with the milk"),
        Predicted(33.0, 60.0, "pour the mixture into a pan"),
    ],
    "v_cccccccccc3": [Predicted(15.0, 20.0, "season with salt and pepper")],
    "v_eeeeeeeeee5": [Predicted(0.0, 5.0, "an answer that nothing asks for")],
}
