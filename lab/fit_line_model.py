"""Fits the hidden Markov model of lines against narration (grounding/line_model.py), and tests it
on dishes left out.

    python lab/fit_line_model.py NARRATION.json.gz [--step-probabilities FILE]
        [--write | --write-so-far]

NARRATION: the narrations of YouCook2 videos with the videos' own sentences and seconds. There are
three lists per video: its own sentences, those with half as many of another dish between them, and
those of another dish alone. The option --step-probabilities is a JSON of P(it describes a step) of
each sentence by video.

The loss: - log of the share of a line's posterior in sentences whose middle, two seconds later, is
in its span. Added is SAID_WEIGHT (line_chain.py) times the cross-entropy of P(said anywhere).
Numbers without --write are of dishes that the weights were not fitted on, by FOLDS folds.
"""

import argparse
import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from line_chain import Batch, TrainedChain

from stepline.grounding.fusion import WORDS_LAG_SECONDS
from stepline.grounding.line_model import (
    FEATURE_NAMES,
    LinePosterior,
    LineWeights,
    StepTextHmm,
    line_features,
    load_line_weights,
    match_features,
    said_features,
    sentence_parts,
)
from stepline.numeric import fit_logistic_weights
from stepline.records import Span
from stepline.text import embed

WEIGHTS_PATH = Path(__file__).resolve().parents[1] / "stepline/grounding/line_model.json"
RESULT_PATH = Path(__file__).resolve().parent / "results/line_model.json"
LAG_SECONDS = 2.0  # by which what is seen follows the words
NEAR_SECONDS = 8.0
LEAST_SECONDS = 1.0  # of a sentence
SECONDS_PER_WORD = 0.6
FOLDS = 5
EPOCH_COUNT = 8
BATCH_LISTS = 24
LEARNING_RATE = 0.1
LAST_LEARNING_RATE = 0.01
SAID_PENALTY = 1.0
HEARD_PARTS = 7  # beginnings of each narration, of one that goes on
OWN_FRACTION = 0.9  # of the own lines that count as said where another's are counted
WEIGHT_DECIMALS = 4


@dataclass(frozen=True)
class LineList:
    """Lines against one narration. features: (K, S, F). parts: (S,) of `sentence_parts`.
    sentences: (S,) when said. spans: (K,) where shown, None for a line of another dish."""

    dish: str
    features: np.ndarray
    parts: np.ndarray
    sentences: tuple[Span, ...]
    spans: tuple[tuple[float, float] | None, ...]

    @property
    def middles(self) -> np.ndarray:
        """(S,) seconds."""
        return np.array([span.center for span in self.sentences])

    @property
    def hits(self) -> np.ndarray:
        """(K, S): whether a sentence's middle, a little later, is in the line's span."""
        hits = np.zeros(self.features.shape[:2])
        later = self.middles + LAG_SECONDS
        for row, span in zip(hits, self.spans, strict=True):
            if span is not None:
                start, end = span
                row[:] = (later >= start) & (later <= end)
        return hits


class NarrationReader:
    """The videos of a narration.json.gz that have steps, and the vectors of their texts."""

    def __init__(self, path: Path, step_probabilities: dict[str, list[float]]) -> None:
        videos = json.loads(gzip.decompress(path.read_bytes()))
        self.videos = {}  # by name, those with steps and sentences
        for name, video in sorted(videos.items()):
            if video["steps"] and video["sentences"]:
                self.videos[name] = video
        self._step_probabilities = step_probabilities
        texts: dict[str, int] = {}
        for video in self.videos.values():
            for row in (*video["sentences"], *video["steps"]):
                texts.setdefault(row["text"], len(texts))
        self._rows = texts
        self._vectors = embed(list(texts))

    def lists(self) -> dict[str, list[LineList]]:
        """Return the three lists of each video by kind."""
        rng = random.Random(0)
        lists: dict[str, list[LineList]] = {"own": [], "mixed": [], "foreign": []}
        for name, video in self.videos.items():
            own = [(step["text"], tuple(step["span"])) for step in video["steps"]]
            lists["own"].append(self._list(name, own))
            strange = self._other_dish(name, rng)
            mixed = list(own)
            half = max(1, round(len(own) / 2))
            for line in rng.sample(strange, min(half, len(strange))):
                mixed.insert(rng.randrange(len(mixed) + 1), line)
            lists["mixed"].append(self._list(name, mixed))
            lists["foreign"].append(self._list(name, self._other_dish(name, rng)))
        return lists

    def _other_dish(self, name: str, rng: random.Random) -> list[tuple[str, Any]]:
        dish = self.videos[name]["title"]
        others = [video for video in self.videos.values() if video["title"] != dish]
        return [(step["text"], None) for step in rng.choice(others)["steps"]]

    def _list(self, name: str, lines: Sequence[tuple[str, Any]]) -> LineList:
        video = self.videos[name]
        texts = [text for text, _ in lines]
        sentences = [row["text"] for row in video["sentences"]]
        step_probabilities = None
        if name in self._step_probabilities:
            step_probabilities = np.array(self._step_probabilities[name])
        text_vectors = self._embed(texts)
        sentence_vectors = self._embed(sentences)
        features = line_features(
            texts, sentences, text_vectors, sentence_vectors, step_probabilities
        )
        return LineList(
            dish=video["title"],
            features=features,
            parts=sentence_parts(sentences),
            sentences=sentence_spans(video["sentences"]),
            spans=tuple(span for _, span in lines),
        )

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        return self._vectors[[self._rows[text] for text in texts]]


def sentence_spans(rows: Sequence[dict[str, Any]]) -> tuple[Span, ...]:
    """Return where each sentence is said. It ends where the next begins, or earlier."""
    spans = []
    for number, row in enumerate(rows):
        start = row["start"]
        word_count = len(row["text"].split())
        end = start + LEAST_SECONDS + SECONDS_PER_WORD * word_count
        if number + 1 < len(rows):
            next_start = rows[number + 1]["start"]
            end = min(end, max(next_start, start + 0.1))
        spans.append(Span(start, end))
    return tuple(spans)


def shown_seconds(item: LineList, match: LinePosterior) -> np.ndarray:
    """Return the second at which each line is most likely shown, (K,), by its likeliest sentence."""
    best = match.posterior.argmax(axis=1)
    return np.array([item.sentences[n].center + WORDS_LAG_SECONDS for n in best])


def pad_lists(lists: Sequence[LineList]) -> Batch:
    """Return one batch of the lists."""
    count = len(lists)
    most_lines = max(item.features.shape[0] for item in lists)
    most_sentences = max(item.features.shape[1] for item in lists)
    features = np.zeros((count, most_lines, most_sentences, len(FEATURE_NAMES)))
    hits = np.zeros((count, most_lines, most_sentences))
    lines = np.zeros((count, most_lines), bool)
    sentences = np.zeros((count, most_sentences), bool)
    strange = np.zeros((count, most_lines), bool)
    for row, item in enumerate(lists):
        k, s, _ = item.features.shape
        features[row, :k, :s] = item.features
        hits[row, :k, :s] = item.hits
        lines[row, :k] = True
        sentences[row, :s] = True
        strange[row, :k] = [span is None for span in item.spans]
    arrays = (features, lines, sentences, hits, strange)
    return Batch(*(torch.from_numpy(array) for array in arrays))


def fit(lists: Sequence[LineList], used: Sequence[bool]) -> LineWeights:
    """Return the numbers fitted on the lists. used: (F,) which features count."""
    torch.manual_seed(0)
    chain = TrainedChain(used)
    optimizer = torch.optim.Adam(chain.parameters(), lr=LEARNING_RATE)
    # Lists of about one size make a batch.
    in_order = sorted(lists, key=lambda item: (len(item.sentences), len(item.spans)))
    batches = []
    for first in range(0, len(in_order), BATCH_LISTS):
        batches.append(pad_lists(in_order[first : first + BATCH_LISTS]))
    rng = random.Random(1)
    for epoch in range(EPOCH_COUNT):
        optimizer.param_groups[0]["lr"] = (
            LEARNING_RATE * (1 - epoch / EPOCH_COUNT) + LAST_LEARNING_RATE
        )
        rng.shuffle(batches)
        for batch in batches:
            optimizer.zero_grad()
            chain.loss(batch).backward()
            optimizer.step()
    return with_said_weights(chain.numbers(), lists)


def with_said_weights(weights: LineWeights, lists: Sequence[LineList]) -> LineWeights:
    """Return the numbers with the two regressions of P(said)."""
    said_weights, bias = fit_said(weights, lists, so_far=False)
    weights = replace(weights, said_weights=said_weights, said_bias=bias)
    return with_said_so_far(weights, lists)


def with_said_so_far(weights: LineWeights, lists: Sequence[LineList]) -> LineWeights:
    """Return the numbers with the regression of P(said) of a narration that goes on."""
    parts = [part for number, item in enumerate(lists) for part in first_parts(item, number)]
    said_weights, bias = fit_said(weights, parts, so_far=True)
    return replace(weights, said_so_far=said_weights, said_so_far_bias=bias)


def first_parts(item: LineList, seed: int) -> list[LineList]:
    """Return a list with what is heard by sentences drawn at random, and with all. A line has its
    span only where a sentence so far is in it."""
    sentences = len(item.sentences)
    rng = random.Random(seed)
    counts = [rng.randint(1, sentences) for _ in range(HEARD_PARTS)]
    parts = []
    for count in (*counts, sentences):
        features = item.features[:, :count].copy()
        features[..., FEATURE_NAMES.index("position")] = 0.0
        is_said = item.hits[:, :count].any(axis=1).tolist()
        spans = []
        for span, said_so_far in zip(item.spans, is_said, strict=True):
            spans.append(span if said_so_far else None)
        part = replace(
            item,
            features=features,
            parts=item.parts[:count],
            sentences=item.sentences[:count],
            spans=tuple(spans),
        )
        parts.append(part)
    return parts


def fit_said(
    weights: LineWeights, lists: Sequence[LineList], *, so_far: bool
) -> tuple[tuple[float, ...], float]:
    """Return the weights and the bias of the regression of P(said)."""
    rows = []
    labels: list[float] = []
    for item in lists:
        features_of_parts = item.features
        if so_far:
            features_of_parts = np.repeat(item.features, item.parts, axis=1)
        chain = StepTextHmm(features_of_parts, weights, so_far=so_far)
        _, total = chain.posterior()
        rows.append(said_features(item.features, chain.log_never(total)))
        labels += [float(span is not None) for span in item.spans]
    features = np.concatenate(rows)
    spread = features.std(axis=0)
    mean = features.mean(axis=0)
    scaled = np.column_stack([(features - mean) / spread, np.ones(len(features))])
    columns = scaled.shape[1]
    scaled_weights = fit_logistic_weights(
        scaled,
        np.array(labels),
        prior_mean=np.zeros(columns),
        prior_precision=SAID_PENALTY * np.eye(columns),
    )
    said_weights = scaled_weights[:-1] / spread
    bias = scaled_weights[-1] - said_weights @ mean
    return tuple(said_weights.tolist()), float(bias)


@dataclass
class Outcome:
    """What the test lists come to: whether lines are placed right, and P(said) by kind of list."""

    inside: list[bool]
    near: list[bool]
    chances: dict[str, list[float]]
    truths: dict[str, list[bool]]

    def add(self, kind: str, lists: Sequence[LineList], weights: LineWeights) -> None:
        """Place the lines of these lists and keep what comes of it."""
        for item in lists:
            match = match_features(item.features, weights)
            self.chances.setdefault(kind, []).extend(match.said_probabilities.tolist())
            truths = [span is not None for span in item.spans]
            self.truths.setdefault(kind, []).extend(truths)
            if kind != "own":
                continue
            for second, span in zip(shown_seconds(item, match), item.spans, strict=True):
                assert span is not None
                start, end = span
                self.inside.append(start <= second <= end)
                self.near.append(start - NEAR_SECONDS <= second <= end + NEAR_SECONDS)

    def add_so_far(self, kind: str, lists: Sequence[LineList], weights: LineWeights) -> None:
        """Keep P(said) of the lines while the narration goes on."""
        for number, item in enumerate(lists):
            for part in first_parts(item, number)[:HEARD_PARTS]:
                match = match_features(part.features, weights, parts=part.parts, so_far=True)
                chances = match.said_probabilities.tolist()
                truths = [span is not None for span in part.spans]
                self.chances.setdefault(f"{kind} so far", []).extend(chances)
                self.truths.setdefault(f"{kind} so far", []).extend(truths)

    def figures(self) -> dict[str, float]:
        """Return the figures that docs/results has."""
        own = np.array(self.chances["own"])
        mixed = np.array(self.chances["mixed"])
        foreign = np.array(self.chances["foreign"])
        is_own = np.array(self.truths["mixed"])
        threshold = np.quantile(own, 1 - OWN_FRACTION)
        so_far = np.array(self.chances["own so far"])
        is_heard = np.array(self.truths["own so far"])
        foreign_so_far = np.array(self.chances["foreign so far"])
        values = {
            "R@1": np.mean(self.inside),
            "within 8 s": np.mean(self.near),
            "mixed lists: AUC of said": area_under_curve(mixed, is_own),
            "another's believed at .9 of the own": np.mean(foreign >= threshold),
            "own believed at .5": np.mean(own >= 0.5),
            "another's believed at .5": np.mean(foreign >= 0.5),
            "in mixed lists, own at .5": np.mean(mixed[is_own] >= 0.5),
            "in mixed lists, another's at .5": np.mean(mixed[~is_own] >= 0.5),
            "so far: AUC of said": area_under_curve(so_far, is_heard),
            "so far: said at .5": np.mean(so_far[is_heard] >= 0.5),
            "so far: not yet said at .5": np.mean(so_far[~is_heard] >= 0.5),
            "so far: another's at .5": np.mean(foreign_so_far >= 0.5),
        }
        return {name: round(float(value), 3) for name, value in values.items()}


def area_under_curve(values: np.ndarray, labels: np.ndarray) -> float:
    """Return the area under the ROC curve. Ties count half."""
    positive = values[labels][:, None]
    negative = values[~labels]
    above = positive > negative
    equal = positive == negative
    return float(above.mean() + equal.mean() / 2)


def cross_validate(lists: dict[str, list[LineList]], used: Sequence[bool]) -> dict[str, float]:
    """Return the figures of dishes left out."""
    dishes = sorted({item.dish for item in lists["own"]})
    random.Random(0).shuffle(dishes)
    outcome = Outcome([], [], {}, {})
    for fold in range(FOLDS):
        held_out = set(dishes[fold::FOLDS])
        train = [item for item in all_lists(lists) if item.dish not in held_out]
        weights = fit(train, used)
        for kind, items in lists.items():
            test = [item for item in items if item.dish in held_out]
            outcome.add(kind, test, weights)
            outcome.add_so_far(kind, test, weights)
    return outcome.figures()


def all_lists(lists: dict[str, list[LineList]]) -> list[LineList]:
    """Return the lists of all kinds."""
    return [item for items in lists.values() for item in items]


def write_weights(weights: LineWeights) -> None:
    """Write the numbers that the package reads, rounded."""
    content: dict[str, Any] = {}
    for name, value in asdict(weights).items():
        if name == "evidence":
            rounded = [round(number, WEIGHT_DECIMALS) for number in value]
            content[name] = dict(zip(FEATURE_NAMES, rounded, strict=True))
        elif isinstance(value, tuple):
            content[name] = [round(number, WEIGHT_DECIMALS) for number in value]
        else:
            content[name] = round(value, WEIGHT_DECIMALS)
    WEIGHTS_PATH.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Fit, print and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("narration", type=Path)
    parser.add_argument("--step-probabilities", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument(
        "--write-so-far",
        action="store_true",
        help="fit P(said) of a narration that goes on alone, and write it",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    chances = {}
    if options.step_probabilities is not None:
        chances = json.loads(options.step_probabilities.read_text(encoding="utf-8"))
    lists = NarrationReader(options.narration, chances).lists()
    used = [True] * len(FEATURE_NAMES)
    if options.write:
        write_weights(fit(all_lists(lists), used))
        return
    if options.write_so_far:
        write_weights(with_said_so_far(load_line_weights(), all_lists(lists)))
        return
    result = {"all": cross_validate(lists, used)}
    print(json.dumps(result, indent=1), flush=True)


if __name__ == "__main__":
    main()
