"""A text base held in memory, of a few documents written for the tests, with vectors of counted
words."""

import re
from pathlib import Path

import numpy as np

from stepline.sieve_swap.text_base.base import Document, TextBase, TextStep

TOAST = (
    "Garlic toast",
    ["Peel 2 cloves garlic.", "Rub the toast with the garlic.", "Drizzle with olive oil."],
)
MIX = "Mix beans and onion with vinegar."
SALAD = ("Bean salad", ["Drain the beans.", "Chop 1 red onion.", MIX, "Do not salt yet."])
TIRE = (
    "Change a bicycle tire",
    ["Remove the wheel.", "Lever off the tire.", "Pump the new tube to 60 psi."],
)


def words_of(text):
    return re.findall(r"[a-z]+|\d+", text.lower())


class SmallBase(TextBase):
    """Documents with one row a step; a vector counts words, so that cosines can be worked by
    hand."""

    def __init__(self, documents=(TOAST, SALAD, TIRE), licence="CC0-1.0"):
        self.folder, self.encoder = Path("small"), "counted words"
        self._documents = []
        for number, (title, texts) in enumerate(documents):
            id, steps = f"d{number}", []
            for place, text in enumerate(texts):
                steps.append(TextStep(f"{id}#{place}", text, id, place, "tests", licence))
            self._documents.append(Document(id, title, tuple(steps), "tests", licence))
        self._steps = [step for document in self._documents for step in document.steps]
        every = dict.fromkeys(word for step in self._steps for word in words_of(step.text))
        self._words = {word: number for number, word in enumerate(every)}
        self.width = len(self._words) + 1
        self.step_count, self.document_count = len(self._steps), len(self._documents)
        self._vectors = self.embed([step.text for step in self._steps])

    def embed(self, texts):
        """Return unit vectors of word counts; the last place counts the words that no step has."""
        vectors = np.zeros((len(texts), self.width), np.float32)
        for row, text in enumerate(texts):
            for word in words_of(text):
                vectors[row, self._words.get(word, self.width - 1)] += 1
        return vectors / np.maximum(1e-9, np.linalg.norm(vectors, axis=1, keepdims=True))

    def documents(self):
        return iter(self._documents)

    def step_rows(self, number):
        first = sum(len(document.steps) for document in self._documents[:number])
        return np.arange(first, first + len(self._documents[number].steps))

    def steps(self, rows):
        return [self._steps[row] for row in rows]

    def vectors(self, rows):
        return self._vectors[np.asarray(rows, dtype=np.int64)]

    def find_nearest_steps(self, queries, k=1, *, documents=None):
        every = range(self.document_count) if documents is None else documents
        rows = np.concatenate([self.step_rows(int(number)) for number in every])
        cosines = queries @ self._vectors[rows].T
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        found, near = rows[order], np.take_along_axis(cosines, order, axis=1)
        lacking = k - found.shape[1]
        if lacking > 0:
            found = np.pad(found, ((0, 0), (0, lacking)), constant_values=-1)
            near = np.pad(near, ((0, 0), (0, lacking)), constant_values=-1.0)
        return found, near.astype(np.float32)
