"""Four videos of dense captions in PDVC's flat form, and predictions for three of them and for one
more."""

from stepline.datasets.predictions import PredictedSegment as Predicted

TRUTH = {
    "v_aaaaaaaaaa1": {
        "duration": 90.5,
        "timestamps": [[3, 20.5], [22, 41], [50.25, 80]],
        "sentences": [
            "chop the onion finely",
            "fry the onion in butter until it is soft",
            "add rice, and stir",
        ],
    },
    "v_bbbbbbbbbb2": {
        "duration": 60.0,
        "timestamps": [[0, 30], [30, 58]],
        "sentences": ["whisk 2 eggs with milk", "pour the mix into a hot pan"],
    },
    "v_cccccccccc3": {
        "duration": 33.0,
        "timestamps": [[5, 9]],
        "sentences": ["season with salt and pepper"],
    },
    "v_dddddddddd4": {
        "duration": 40.0,
        "timestamps": [[1, 11], [20, 35]],
        "sentences": ["knead the dough", "let it rest"],
    },
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
