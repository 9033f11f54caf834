"""The text tower of S3D-G: words to one vector of the space shared with clips.

Letters: K texts, N words a text. Source: Miech et al. 2020; its released code and TAN's differ in how they tokenise.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from stepline.errors import ModelError
from stepline.vision.s3d.network import JOINT

Tokenisation: TypeAlias = Literal["released", "tan"]

EMBEDDING, HIDDEN = 300, 2048
PADDING = 0  # token 0; words count from 1
LENGTHS: dict[Tokenisation, int] = {"released": 16, "tan": 32}  # words a text that count
WORD = re.compile(r"[\w']+")


class Dictionary:
    """The words that have a vector: `s3d_dict.npy`, in which the word of place i has token i + 1."""

    def __init__(self, words: Sequence[str]) -> None:
        self._tokens = {word: place + 1 for place, word in enumerate(words)}
        self.size = len(words) + 1  # with padding

    def tokens(self, texts: Sequence[str], form: Tokenisation = "released") -> Tensor:
        """Return (K, N) token numbers, 0 where there is no word.

        "released": unknown words are left out before the first 16 are kept. "tan": they stay, as 0, among 32.
        """
        rows = torch.zeros((len(texts), LENGTHS[form]), dtype=torch.int64)
        for row, text in zip(rows, texts, strict=True):
            found = [self._tokens.get(word, PADDING) for word in WORD.findall(text.lower())]
            kept = [token for token in found if token or form == "tan"][: LENGTHS[form]]
            row[: len(kept)] = torch.tensor(kept, dtype=torch.int64)
        return rows


class Words(nn.Module):  # type: ignore[misc]
    """Embedding, linear, ReLU, max over the words, linear; frozen in WYS2."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.word_embd = nn.Embedding(size, EMBEDDING)
        self.fc1 = nn.Linear(EMBEDDING, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, JOINT)

    def forward(self, tokens: Tensor, form: Tokenisation = "released") -> Tensor:
        """Return (K, 512) for tokens (K, N), not normalised.

        "released": padding takes part in the maximum as any word does, so a text's length matters a little. "tan":
        padding and unknown words are left out; a text without a known word then counts as all zeros.
        """
        hidden = torch.relu(self.fc1(self.word_embd(tokens)))  # (K, N, 2048)
        if form == "tan":
            hidden = hidden * (tokens != PADDING)[:, :, None]  # >= 0 after the ReLU, so that 0 never wins
        joint: Tensor = self.fc2(hidden.amax(1))  # (K, 512)
        return joint


def read_dictionary(path: Path) -> Dictionary:
    """Return the words of a file. Raises ModelError unless it is a NumPy array of different words."""
    try:
        words = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: not S3D's dictionary ({reason}); give s3d_dict.npy") from error
    if not isinstance(words, np.ndarray) or words.ndim != 1 or words.dtype.kind != "U" or not len(words):
        raise ModelError(f"{path}: holds no list of words; give s3d_dict.npy")
    if len(set(words.tolist())) != len(words):
        raise ModelError(f"{path}: holds a word twice; give s3d_dict.npy as it was released")
    return Dictionary(words.tolist())
