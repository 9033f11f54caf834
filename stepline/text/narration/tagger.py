"""The tagger of sentences: MiniLM with low-rank additions, and three linear heads.

kind   kind of a sentence: step, warning, ... (from the sentence's vector)
edit   whether a word is kept, dropped, ... in the step (from the word's and the sentence's vectors)
verb   the verb that an editor would put in front, or none (from the sentence's vector)

A sentence's vector is the mean of its words' vectors.
Letters: S sentences, W words, D width.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from stepline.errors import ModelError
from stepline.text.narration.adapted_encoder import (
    AdaptedEncoder,
    Array,
    read_weights_file,
    running_total,
    word_means,
)
from stepline.text.narration.windows import sentence_windows
from stepline.text.narration.words import SENTENCE_KINDS, clauses_of_speech

WEIGHTS_FILE = "narration_tagger.safetensors"
MAX_RECENT_WINDOWS = 1000  # whose tags are kept, some three hours of speech


@dataclass(frozen=True)
class SentenceTags:
    """The tagger's probabilities for a sentence of W words.

    Attributes:
        kind_probabilities: P of each of the 8 SENTENCE_KINDS, (8,).
        edit_probabilities: P of each of the 5 WORD_EDITS for each word, (W, 5).
        front_verb_probabilities: for each of V verbs, P(an editor puts the verb in front of the
            sentence), (V,). The entry of NO_VERB means that no verb is put in front.
        clauses: the tags of each clause of the sentence, empty for a sentence of one clause.
    """

    kind_probabilities: Array
    edit_probabilities: Array
    front_verb_probabilities: Array
    clauses: "tuple[SentenceTags, ...]" = ()

    @property
    def step_probability(self) -> float:
        """P(the sentence describes a step)."""
        return float(self.kind_probabilities[SENTENCE_KINDS.index("step")])

    @property
    def is_warning(self) -> bool:
        """Whether a warning is more likely than a step."""
        return (
            float(self.kind_probabilities[SENTENCE_KINDS.index("warning")]) > self.step_probability
        )


class NarrationTagger:
    """Predicts the kind of each sentence of a narration, and how an editor changes its words.

    Immutable once loaded, so thread-safe.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Load the weights. Raises ModelError when they cannot be read or MiniLM is missing.

        path: a tagger of lab/writer_training. None: the one shipped with the package.
        """
        weights, self.front_verbs = read_tagger_file(path)
        self._encoder = AdaptedEncoder(weights)

    def tag_sentences(self, sentences: Sequence[str]) -> list[SentenceTags]:
        """Return the tagger's probabilities of each sentence of one narration, in order.

        The network reads each sentence with its neighbours. The clauses of a long sentence, which
        may hold a step among other things, are also read one by one.

        sentences: texts, in spoken order.
        """
        sentence_tags = self._tag_in_windows(sentences)
        clauses = [clauses_of_speech(sentence) for sentence in sentences]
        if all(len(sentence_clauses) == 1 for sentence_clauses in clauses):
            return sentence_tags
        # The clauses of all sentences in one pass.
        clause_tags = iter(self._tag_in_windows(list(chain(*clauses))))
        for number, sentence_clauses in enumerate(clauses):
            own = tuple(islice(clause_tags, len(sentence_clauses)))
            if len(own) > 1:
                sentence_tags[number] = replace(sentence_tags[number], clauses=own)
        return sentence_tags

    def _tag_in_windows(self, sentences: Sequence[str]) -> list[SentenceTags]:
        """Return the tags of each sentence. Tags of clauses are not filled in.

        The network reads windows of neighbouring sentences, as many as its input length allows.

        sentences: texts, in spoken order.
        """
        sentence_tags: list[SentenceTags] = []
        for window in sentence_windows(sentences, self._encoder.tokenizer):
            word_starts = tuple(span.word_starts for span in window.spans)
            sentence_tags += _tag_window(self._encoder, window.ids, word_starts)
        return sentence_tags


# The writer, the check that a narration instructs and the placing of lines read nearly the same
# sentences, and live narration is read again as it grows.
@functools.lru_cache(maxsize=MAX_RECENT_WINDOWS)
def _tag_window(
    encoder: AdaptedEncoder, token_ids: tuple[int, ...], word_starts: tuple[tuple[int, ...], ...]
) -> list[SentenceTags]:
    """Return the tags of each sentence of a window.

    Args:
        encoder: the tagger's.
        token_ids: of the L tokens of the window.
        word_starts: of each sentence, as in `WordSpan`.
    """
    hidden = encoder.encode(token_ids)  # (L, D)
    totals = running_total(hidden)
    sentence_tags = []
    for sentence_starts in word_starts:
        words = word_means(totals, sentence_starts)  # (W, D)
        # Without words, the window's first token is the sentence.
        sentence = words.mean(axis=0, keepdims=True) if len(words) else hidden[:1]
        features = np.hstack([words, np.repeat(sentence, len(words), axis=0)])
        kinds = encoder.predict_classes("kind", sentence)
        edits = encoder.predict_classes("edit", features)
        verbs = encoder.predict_classes("verb", sentence)
        sentence_tags.append(SentenceTags(kinds[0], edits, verbs[0]))
    return sentence_tags


def read_tagger_file(path: Path | None) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return the weights of a narration tagger (name -> float32 array), and its V front verbs: the
    verbs that it can put in front of a sentence without a verb.

    path: a file of lab/writer_training, or its folder. None: the one shipped with the package.

    Raises ModelError for another file.
    """
    weights, metadata = read_weights_file(path, WEIGHTS_FILE)
    front_verbs = metadata.get("front_verbs")
    if not isinstance(front_verbs, list) or not front_verbs:
        raise ModelError(
            f"{path or WEIGHTS_FILE}: no narration tagger (no front verbs); give a file that "
            "lab/writer_training wrote"
        )
    return weights, tuple(front_verbs)


@functools.cache
def load_tagger(path: Path | None = None) -> NarrationTagger:
    """Return the tagger, loaded once per process. path: as in `NarrationTagger`."""
    return NarrationTagger(path)
