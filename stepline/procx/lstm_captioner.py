"""PDVC's captioner in its plain form, the baseline: one LSTM layer fed with the last word and the query.

PDVC's own attends to the features at each word with deformable attention; this is the variant without, which its paper
finds a little worse. Letters: M captions, W tokens, D width, V vocabulary, R rows written at a time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.procx.captioner import Context, Told
from stepline.procx.text_settings import CaptionerSettings


@dataclass
class LstmWriting:
    """A caption under way: the queries (R, D), and the layer's state, two of (1, R, D)."""

    queries: Tensor
    state: tuple[Tensor, Tensor]

    def take(self, rows: Tensor) -> None:
        """Go on with these rows, (R,) indices into the present ones."""
        self.queries, self.state = self.queries[rows], (self.state[0][:, rows], self.state[1][:, rows])


class LstmCaptioner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """A caption word by word from the query alone; features and transcript of the context are not looked at."""

    def __init__(self, settings: CaptionerSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.longest = settings, settings.longest
        self.words = nn.Embedding(vocabulary, settings.width)
        self.lstm = nn.LSTM(2 * settings.width, settings.width, batch_first=True)
        self.out = nn.Linear(settings.width, vocabulary)
        self.drop = nn.Dropout(settings.dropout)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)   # PDVC

    def forward(self, tokens: Tensor, token_pad: Tensor, context: Context) -> Told:  # noqa: ARG002
        """Return what comes after each token, no vectors. tokens, token_pad: (M, W), padded at the end."""
        if len(tokens) != len(context.queries):
            raise ShapeError(f"{len(tokens)} captions cannot be of {len(context.queries)} queries; give one each")
        queries = context.queries[:, None].expand(-1, tokens.shape[1], -1)   # (M, W, D)
        if not len(tokens):
            return Told(self.out(queries), None)
        rows, _ = self.lstm(torch.cat((self.words(tokens), queries), dim=-1))   # (M, W, D)
        return Told(self.out(self.drop(rows)), None)

    def begin(self, context: Context) -> LstmWriting:
        """Return the state from which captions of this context are written."""
        empty = context.queries.new_zeros(1, *context.queries.shape)
        return LstmWriting(context.queries, (empty, empty))

    def go_on(self, tokens: Tensor, writing: LstmWriting) -> Tensor:
        """Return the logits (R, V) of what comes after the last tokens (R,)."""
        fed = torch.cat((self.words(tokens), writing.queries), dim=-1)[:, None]   # (R, 1, 2 D)
        rows, writing.state = self.lstm(fed, writing.state)
        return self.out(rows[:, 0])
