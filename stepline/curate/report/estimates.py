"""How much of a dataset is right: from calibrated scores, from an audit, and from the two together."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepline.curate.audit.sample import Kind
from stepline.curate.audit.table import means, rows
from stepline.curate.audit.verdicts import Verdict
from stepline.curate.report.counts import Shares
from stepline.curate.report.findings import Findings
from stepline.curate.shares import Share, corrected, share

NONE = share((), ())


@dataclass(frozen=True)
class Estimate:
    """A share of one kind of text, by three ways; note: what the scores are."""

    name: str
    question: str
    scored: Share
    audited: Share
    both: Share
    note: str


def estimates(findings: Findings, verdicts: Sequence[Verdict]) -> list[Estimate]:
    """Return four shares: raw narration and steps, alignable and well aligned.

    The judge's P(shown) of a sentence is about its own seconds: it answers "well aligned". The aligner's P(shown) of a
    step is about the whole video: it answers "alignable". The other two are known from an audit alone.
    """
    narration, steps = rows(findings.sample, verdicts)
    judged = _scored(findings.counts.narration_shown)
    shown = _scored(findings.counts.steps_shown)
    return [
        Estimate(narration.name, "alignable", NONE, narration.alignable, NONE, ""),
        Estimate(narration.name, "well aligned", judged, narration.aligned,
                 _both(findings, verdicts, "well aligned", "narration", judged), "the judge's P(shown)"),
        Estimate(steps.name, "alignable", shown, steps.alignable,
                 _both(findings, verdicts, "alignable", "step", shown), "the aligner's P(shown)"),
        Estimate(steps.name, "well aligned", NONE, steps.aligned, NONE, ""),
    ]  # fmt: skip


def _scored(shares: Shares) -> Share:
    return share(shares.sums, shares.texts)


def _both(findings: Findings, verdicts: Sequence[Verdict], question: str, kind: Kind, scored: Share) -> Share:
    texts = [text for text in findings.sample.asked if text.kind == kind]
    scores = {text.id: text.score for text in texts if text.score is not None}
    owner = {text.id: text.video for text in texts}
    return corrected(scores, means(findings.sample, verdicts, question, kind), owner, scored.value)
