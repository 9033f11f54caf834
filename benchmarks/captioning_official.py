"""The official way to score dense captions, for benchmarks/captioning.py: pycocoevalcap's own
classes and Java.

The loops over videos follow the facts known of SODA and of densevid_eval 2018. Every metric and the
tokenizer are pycocoevalcap's.
"""

from collections.abc import Sequence
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
GARBAGE = "abc123!@#"


class OfficialMeteor:
    """pycocoevalcap's METEOR behind our interface."""

    def __init__(self) -> None:
        self._meteor = Meteor()

    def compare(self, pairs: Sequence[tuple[Sequence[str], str]]) -> MeteorScores:
        """Return one score a pair, and the aggregate."""
        gold = {index: list(references) for index, (references, _) in enumerate(pairs)}
        made = {index: [hypothesis] for index, (_, hypothesis) in enumerate(pairs)}
        aggregate, segments = self._meteor.compute_score(gold, made)
        return MeteorScores(tuple(segments), aggregate)


def tokenized(videos: Videos) -> Videos:
    """Return the events with the tokens of their captions."""
    places = [(video, index) for video, events in videos.items() for index in range(len(events))]
    lines = {place: [{"caption": only_ascii(videos[place[0]][place[1]][2])}] for place in places}
    tokens = PTBTokenizer().tokenize(lines)
    return {
        video: [
            (start, end, tokens[video, index][0]) for index, (start, end, _) in enumerate(events)
        ]
        for video, events in videos.items()
    }


def official_soda(references: Videos, predictions: Videos) -> float:
    """Return SODA_c's F1 with METEOR of every pair of a video, roles swapped. The pairing itself is
    ours."""
    references, predictions = tokenized(references), tokenized(predictions)
    meteor, scores = OfficialMeteor(), []
    for video, events in references.items():
        wanted = sorted(events, key=lambda event: event[0])
        given = sorted(predictions[video], key=lambda event: event[0])
        if not given:
            scores.append(0.0)
            continue
        iou = segment_iou(times(wanted), times(given))
        similarity = meteor.compare(
            [((made[2],), gold[2]) for gold in wanted for made in given]
        ).segments
        worth = best_ordered_sum(iou * np.array(similarity).reshape(iou.shape))
        precision, recall = worth / len(given), worth / len(wanted)
        scores.append(2 * precision * recall / (precision + recall) if worth else 0.0)
    return sum(scores) / len(scores)


def official_densevid(
    references: Videos, predictions: Videos, tious: Sequence[float]
) -> dict[str, float]:
    """Return densevid_eval 2018's caption metrics, means over videos and tIoUs."""
    scorers = {"METEOR": Meteor(), "CIDEr": Cider(), "BLEU": Bleu(4), "ROUGE-L": Rouge()}
    totals: dict[str, list[float]] = {}
    for tiou in tious:
        gold, made, owners = _items(references, predictions, tiou)
        gold, made = PTBTokenizer().tokenize(gold), PTBTokenizer().tokenize(made)
        for name, scorer in scorers.items():
            for keys in owners.values():
                their_gold, their_made = (
                    {key: gold[key] for key in keys},
                    {key: made[key] for key in keys},
                )
                options = {"verbose": 0} if name == "BLEU" else {}
                score = scorer.compute_score(their_gold, their_made, **options)[0] if keys else 0.0
                _note(totals, name, score)
    return {name: sum(values) / len(values) for name, values in totals.items()}


def _note(totals: dict[str, list[float]], name: str, score: Any) -> None:
    if name != "BLEU":
        totals.setdefault(name, []).append(float(score))
        return
    for size, value in enumerate(score if isinstance(score, list) else [score] * 4, start=1):
        totals.setdefault(f"BLEU-{size}", []).append(float(value))


def _items(
    references: Videos, predictions: Videos, tiou: float
) -> tuple[Captions, Captions, dict[str, list[int]]]:
    """Return gold and predicted captions by item, and each video's items."""
    gold: Captions = {}
    made: Captions = {}
    owners: dict[str, list[int]] = {}
    for video, events in references.items():
        keys = owners.setdefault(video, [])
        given = predictions[video]
        iou = segment_iou(times(given), times(events))
        for row, (_, _, text) in enumerate(given):
            matched = [events[column][2] for column in np.flatnonzero(iou[row] >= tiou)]
            for caption in matched or [GARBAGE]:
                keys.append(len(gold))
                gold[len(gold)] = [{"caption": only_ascii(caption)}]
                made[len(made)] = [{"caption": only_ascii(text)}]
    return gold, made, owners
