"""ProcX's orderings, the paper's and those of what goes beyond it, as differences between rows, seed by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepline.experiments.procx_rows import BEST_PLACES, BEST_WORDS, VIEWS, ProcxRow, procx_rows


@dataclass(frozen=True)
class ProcxClaim:
    """An ordering: how far `more` scores above `less` in a metric; least: what the mean must exceed, None: told only.

    published: the paper's difference.
    """

    words: str
    metric: str
    more: ProcxRow
    less: ProcxRow
    least: float | None = None
    published: float | None = None

    def gains(self, scores: Mapping[str, Mapping[str, Sequence[float]]]) -> tuple[float, ...]:
        """Return the difference in points, a seed. scores: of each row by its name, by metric, a seed."""
        more, less = (scores[row.name][self.metric] for row in (self.more, self.less))
        return tuple(one - other for one, other in zip(more, less, strict=True))


def procx_claims() -> tuple[ProcxClaim, ...]:
    """Return all orderings."""
    row = {one.name: one for one in procx_rows()}
    return tuple(
        ProcxClaim(words, metric, row[more], row[less], least, published)
        for words, metric, more, less, least, published in ORDERINGS
    )


def _chosen(who: str, view: str) -> str:
    return f"decoding: {who}: {view}"


NONE, SWAP, MIXED = "5: ProcX, no pre-training", "5: ProcX, Sieve & Swap", "5: ProcX, mixed"
RAW, SIEVED = "5: ProcX, raw speech", "5: ProcX, only sieved"
PDVC, VID2SEQ = "2a: PDVC in full", "speech: Vid2Seq, pictures alone"
FOCAL, LSTM, VANILLA = "2a: transformer, focal", "2a: LSTM, focal", "2b: nowhere"
NO_CONTRAST, PAIR, MULTIPLE = "contrast: none", "contrast: InfoNCE", "contrast: MIL-InfoNCE"
SUREST, APART, ORACLE = (_chosen("ProcX", said) for said in VIEWS.values())

# what a mean must exceed is at most half of the least seed's difference, and was set after these had been seen
ORDERINGS: tuple[tuple[str, str, str, str, float | None, float | None], ...] = (
    ("ProcX above even parts", "SODA-D", NONE, f"baselines: {BEST_PLACES}", 8.0, None),
    ("ProcX + Sieve & Swap above even parts", "SODA-D", SWAP, f"baselines: {BEST_PLACES}", None, None),
    ("ProcX above even parts, commonest sentence", "SODA-C", NONE, f"baselines: {BEST_PLACES}", 3.0, None),
    ("ProcX + Sieve & Swap above nearest sentences", "SODA-C", SWAP, f"baselines: {BEST_WORDS}", None, None),
    ("Vid2Seq: Sieve & Swap above raw", "SODA-C", "1: Vid2Seq, Sieve & Swap", "1: Vid2Seq, raw speech", None, 0.56),
    ("PDVC: Sieve & Swap above raw", "SODA-C", "1: PDVC, Sieve & Swap", "1: PDVC, raw speech", None, 0.35),
    ("ProcX: Sieve & Swap above raw", "SODA-C", SWAP, RAW, 0.5, 0.32),
    ("ProcX: Sieve & Swap above only sieved", "SODA-C", SWAP, SIEVED, None, 0.36),
    ("ProcX: Sieve & Swap above no pre-training", "SODA-C", SWAP, NONE, None, 1.26),
    ("ProcX: mixed above Sieve & Swap", "SODA-C", MIXED, SWAP, None, None),
    ("ProcX above PDVC, no pre-training", "SODA-C", NONE, PDVC, 1.5, 0.60),
    ("ProcX above PDVC, no pre-training", "SODA-D", NONE, PDVC, None, 3.00),
    ("PDVC above Vid2Seq, no pre-training", "SODA-C", PDVC, VID2SEQ, 0.5, 1.82),
    ("transformer above LSTM, focal", "CIDEr", FOCAL, LSTM, 40.0, 1.46),
    ("transformer above LSTM, focal", "SODA-C", FOCAL, LSTM, None, -0.49),
    ("gVFL above focal", "SODA-D", VANILLA, FOCAL, 7.0, 4.69),
    ("gVFL above focal", "SODA-C", VANILLA, FOCAL, None, 0.90),
    ("key-aware above vanilla", "SODA-D", NONE, VANILLA, None, 1.30),
    ("key-aware above vanilla", "SODA-C", NONE, VANILLA, None, 0.19),
    ("InfoNCE above no contrastive loss", "SODA-C", PAIR, NO_CONTRAST, None, None),
    ("MIL-InfoNCE above InfoNCE in fine-tuning", "SODA-C", MULTIPLE, PAIR, None, None),
    ("zero-shot: Sieve & Swap above raw", "SODA-C", "4: ProcX, Sieve & Swap, youcook2",
     "4: ProcX, raw speech, youcook2", 0.25, 0.93),
    ("zero-shot on Tasty: raw above Sieve & Swap", "SODA-D", "4: ProcX, raw speech, tasty",
     "4: ProcX, Sieve & Swap, tasty", 6.0, 10.37),
    ("oracle above the surest", "SODA-D", ORACLE, SUREST, 5.0, 20.0),
    ("without overlap above the surest", "SODA-D", APART, SUREST, None, None),
    ("without overlap above the surest", "SODA-C", APART, SUREST, None, None),
    ("speech beside pictures, ProcX", "SODA-C", "speech: ProcX, pictures and speech", NONE, None, None),
    ("speech beside pictures, Vid2Seq", "SODA-C", "speech: Vid2Seq, pictures and speech", VID2SEQ, None, None),
)  # fmt: skip
