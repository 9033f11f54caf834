"""Score captions with METEOR 1.5 in Python."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

from stepline.errors import DatasetError
from stepline.evaluate.meteor.align import align
from stepline.evaluate.meteor.lexicon import load_lexicon
from stepline.evaluate.meteor.match import candidates
from stepline.evaluate.meteor.phrases import load_phrases
from stepline.evaluate.meteor.score import MeteorScores, Statistics, statistics, total
from stepline.evaluate.meteor.sentence import Reader, Sentence

_SENTENCES, _PAIRS = 1 << 11, 1 << 14  # captions and pairs remembered, the oldest forgotten first


class Meteor:
    """METEOR of tokenised captions; every caption is read once and every pair scored once.

    Use it on the output of the tokenizer, as the caption metrics do. Raises ModelError without METEOR's tables.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: laid out as the pycocoevalcap package; by default that package."""
        self._reader = Reader(load_lexicon(folder), load_phrases(folder))
        self._sentences: OrderedDict[str, Sentence] = OrderedDict()
        self._pairs: OrderedDict[tuple[str, str], tuple[float, Statistics]] = OrderedDict()

    def segment(self, references: Sequence[str], hypothesis: str) -> float:
        """Return the best METEOR of a hypothesis against any of its references, in [0, 1]."""
        return self._best(references, hypothesis)[0]

    def compare(self, pairs: Iterable[tuple[Sequence[str], str]]) -> MeteorScores:
        """Score (references, hypothesis) pairs and their aggregate; an empty caption scores 0.

        Raises DatasetError for a pair without references, or one whose captions repeat themselves beyond all sense.
        """
        best = [self._best(references, hypothesis) for references, hypothesis in pairs]
        return MeteorScores(tuple(score for score, _ in best), total(part for _, part in best).score())

    def _best(self, references: Sequence[str], hypothesis: str) -> tuple[float, Statistics]:
        if not references:
            raise DatasetError(f"{hypothesis[:60]!r}: has no reference caption; METEOR needs at least one")
        scored = [self._pair(reference, hypothesis) for reference in references]
        return max(scored, key=lambda pair: pair[0])  # the first of equals, as the program does

    def _pair(self, reference: str, hypothesis: str) -> tuple[float, Statistics]:
        key = (reference, hypothesis)
        known = self._pairs.get(key)
        if known is None:
            ours, theirs = self._sentence(hypothesis), self._sentence(reference)
            part = statistics(ours, theirs, align(candidates(ours, theirs), len(ours)))
            known = self._pairs[key] = (part.score(), part)
            if len(self._pairs) > _PAIRS:
                self._pairs.popitem(last=False)
        return known

    def _sentence(self, text: str) -> Sentence:
        sentence = self._sentences.get(text)
        if sentence is None:
            sentence = self._sentences[text] = self._reader.read(text)
            if len(self._sentences) > _SENTENCES:
                self._sentences.popitem(last=False)
        return sentence
