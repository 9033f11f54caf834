"""PDVC's captioner, the baseline: one LSTM layer fed with the last word, the query, and what it looks at.

Without the attention's settings it looks at nothing: the plain variant, which PDVC's paper finds a little worse.
Letters: M captions, W tokens, D width, V vocabulary, R rows written at a time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.layers.dropout import Drop
from stepline.layers.linear import Linear
from stepline.procx.captioner import Context, Told
from stepline.procx.looking import Looking, View
from stepline.procx.settings import AttentionSettings
from stepline.procx.text_settings import CaptionerSettings


@dataclass
class LstmWriting:
    """A caption under way: the queries (R, D), the layer's state, and what is looked at (None: nothing)."""

    queries: Tensor
    hidden: Tensor
    cell: Tensor
    view: View | None

    def take(self, rows: Tensor) -> None:
        """Go on with these rows, (R,) indices into the present ones."""
        self.queries, self.hidden, self.cell = self.queries[rows], self.hidden[rows], self.cell[rows]
        self.view = None if self.view is None else self.view.take(rows)


class LstmCaptioner(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """A caption word by word from the query and, with `attention`, the levels; a transcript is not read."""

    def __init__(
        self, settings: CaptionerSettings, vocabulary: int, attention: AttentionSettings | None = None
    ) -> None:
        super().__init__()
        self.settings, self.longest = settings, settings.longest
        width = settings.width
        self.words = nn.Embedding(vocabulary, width)
        self.looking = None if attention is None else Looking(attention)
        self.fed = Linear(2 * width, 4 * width)  # word and query to the gates
        self.kept = Linear(width if attention is None else 2 * width, 4 * width)  # what is seen, and the state
        self.out = Linear(width, vocabulary)
        self.drop = Drop(settings.dropout)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)  # PDVC

    def forward(self, tokens: Tensor, token_pad: Tensor, context: Context) -> Told:  # noqa: ARG002
        """Return what comes after each token, no vectors. tokens, token_pad: (M, W), padded at the end."""
        if len(tokens) != len(context.queries):
            raise ShapeError(f"{len(tokens)} captions cannot be of {len(context.queries)} queries; give one each")
        queries = context.queries[:, None].expand(-1, tokens.shape[1], -1)  # (M, W, D)
        if not tokens.numel():
            return Told(self.out(queries), None)
        writing = self.begin(context)
        fed = self.fed(torch.cat((self.words(tokens), queries), dim=-1))  # (M, W, 4 D)
        rows = torch.stack([self._step(gates, writing) for gates in fed.unbind(1)], dim=1)  # (M, W, D)
        return Told(self.out(self.drop(rows)), None)

    def begin(self, context: Context) -> LstmWriting:
        """Return the state from which captions of this context are written."""
        empty = torch.zeros_like(context.queries)
        return LstmWriting(context.queries, empty, empty, self.looking and self.looking.view(context))

    def go_on(self, tokens: Tensor, writing: LstmWriting) -> Tensor:
        """Return the logits (R, V) of what comes after the last tokens (R,)."""
        fed = self.fed(torch.cat((self.words(tokens), writing.queries), dim=-1))  # (R, 4 D)
        return self.out(self._step(fed, writing))

    def _step(self, fed: Tensor, writing: LstmWriting) -> Tensor:
        """Return the layer's next hidden state (R, D), and keep it. fed: (R, 4 D), what word and query add to gates."""
        kept = writing.hidden
        if self.looking is not None and writing.view is not None:
            kept = torch.cat((self.looking(writing.hidden, writing.view), writing.hidden), dim=-1)  # (R, 2 D)
        take, forget, new, show = (fed + self.kept(kept)).chunk(4, dim=-1)  # (R, D) each
        writing.cell = forget.sigmoid() * writing.cell + take.sigmoid() * new.tanh()
        writing.hidden = show.sigmoid() * writing.cell.tanh()
        return writing.hidden
