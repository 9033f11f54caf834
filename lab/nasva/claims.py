"""What is claimed of the rows of NaSVA's tables, with the paper's differences."""

from collections.abc import Hashable
from dataclasses import replace

from lab.nasva.rows import (
    ALL_PLANTED,
    AVERAGED_LABELS,
    BOTH_TEXTS,
    CENTER_LABELS,
    CORPUS_VIDEOS,
    EARLY_TEACHER,
    FIRST_LABELS,
    LABELLER_TRIALS,
    LABELS_INSIDE,
    NARRATION_RECALL,
    NARRATION_TRIAL,
    OUR_ROUND,
    REFINED_LABELS,
    STEP_RECALL,
    TABLE_WORLDS,
    VIDEO_FIRST,
    VIDEO_REFINED,
    WORLD_LAGS,
    NasvaTrial,
    fixed,
    labelled,
    lag_name,
    of_corpus,
    of_lag,
    start,
    unshown_rows,
)
from lab.study import Claim

ASSERTED_CLAIMS = (
    Claim(
        "W + S above W, steps",
        STEP_RECALL,
        more=BOTH_TEXTS,
        less=NARRATION_TRIAL,
        least=5.0,
        published=10.2,
    ),
    Claim(
        "self-training on Step-ASR labels, equally long training, steps",
        STEP_RECALL,
        more=REFINED_LABELS,
        less=FIRST_LABELS,
        least=4.0,
        published=7.7,
    ),
    Claim(
        "the same above that of Step-Video labels",
        STEP_RECALL,
        more=REFINED_LABELS,
        less=FIRST_LABELS,
        least=2.0,
        published=7.3,
        beyond=(VIDEO_FIRST, VIDEO_REFINED),
    ),
    Claim(
        "refined S above W, steps",
        STEP_RECALL,
        more=REFINED_LABELS,
        less=NARRATION_TRIAL,
        least=0.0,
        published=9.0,
    ),
    Claim(
        "W above refined S, narrations",
        NARRATION_RECALL,
        more=NARRATION_TRIAL,
        less=REFINED_LABELS,
        least=0.0,
        published=23.3,
    ),
    Claim(
        "refined labels in the planted window more often than coarse ones",
        LABELS_INSIDE,
        more=REFINED_LABELS,
        less=FIRST_LABELS,
        least=0.0,
    ),
    Claim(
        "our student above the early-stopped teacher, steps",
        STEP_RECALL,
        more=labelled(OUR_ROUND),
        less=EARLY_TEACHER,
        least=0.0,
    ),
    Claim(
        "our student above the early-stopped teacher, narrations",
        NARRATION_RECALL,
        more=labelled(OUR_ROUND),
        less=EARLY_TEACHER,
        least=0.0,
    ),
)

REPORTED_CLAIMS = (
    Claim(
        "the paper's student above the early-stopped teacher, steps",
        STEP_RECALL,
        more=REFINED_LABELS,
        less=EARLY_TEACHER,
    ),
    Claim(
        "start above center, 8 s, steps",
        STEP_RECALL,
        more=REFINED_LABELS,
        less=labelled(fixed(0.8, "center", 8.0)),
        published=6.5,
    ),
    Claim(
        "eps2 0.8 above 0.7, start, steps",
        STEP_RECALL,
        more=REFINED_LABELS,
        less=labelled(start(0.7)),
        published=1.4,
    ),
    Claim(
        "two teachers averaged above one, center, steps",
        STEP_RECALL,
        more=AVERAGED_LABELS,
        less=CENTER_LABELS,
    ),
    Claim(
        "teachers that agree above averaged, steps",
        STEP_RECALL,
        more=labelled(OUR_ROUND),
        less=AVERAGED_LABELS,
    ),
    Claim(
        "a second round of ours above the first, steps",
        STEP_RECALL,
        more=labelled(OUR_ROUND, OUR_ROUND),
        less=labelled(OUR_ROUND),
    ),
    Claim(
        "W + S above W, narrations",
        NARRATION_RECALL,
        more=BOTH_TEXTS,
        less=NARRATION_TRIAL,
        published=6.2,
    ),
    Claim("the ceiling above W + S, steps", STEP_RECALL, more=ALL_PLANTED, less=BOTH_TEXTS),
)


def _in_version_2(claim: Claim) -> Claim:
    """Return the same ordering in version 2 of the world, where nothing is asserted."""
    beyond = None
    if claim.beyond is not None:
        first, second = claim.beyond
        beyond = (_moved(first), _moved(second))
    return replace(
        claim,
        statement=f"{claim.statement}, version 2",
        more=_moved(claim.more),
        less=_moved(claim.less),
        least=None,
        beyond=beyond,
    )


def _moved(subject: Hashable) -> NasvaTrial:
    """Return a claim's trial in version 2 of the world."""
    if not isinstance(subject, NasvaTrial):
        raise TypeError(f"a claim of NaSVA's is about trials, not {subject!r}")
    return subject.changed(world="short-2")


def _explained() -> tuple[Claim, ...]:
    """Return the orderings of the tables that explain the others."""
    again = [_in_version_2(claim) for claim in (*ASSERTED_CLAIMS, *REPORTED_CLAIMS)]
    return (*again, *_lag_claims(), *_corpus_claims(), *_labeller_claims(), *_head_claims())


def _lag_claims() -> list[Claim]:
    claims = []
    for world, lag in WORLD_LAGS:
        for metric in (STEP_RECALL, LABELS_INSIDE):
            claim = Claim(
                f"start above center, {lag_name(world, lag)}, {metric.split()[0]}",
                metric,
                more=of_lag(world, lag, "start"),
                less=of_lag(world, lag, "center"),
                published=6.5 if metric == STEP_RECALL else None,
            )
            claims.append(claim)
    return claims


def _corpus_claims() -> list[Claim]:
    claims = []
    for videos in CORPUS_VIDEOS:
        claim = Claim(
            f"eps2 0.8 above 0.6, {videos} videos, steps",
            STEP_RECALL,
            more=of_corpus(videos, 0.8),
            less=of_corpus(videos, 0.6),
        )
        claims.append(claim)
    return claims


def _labeller_claims() -> list[Claim]:
    agreed = "two teachers that agree within 4 s"
    single = "one teacher"
    early = "the early-stopped teacher"
    pairs = (
        (agreed, single),
        (agreed, early),
        ("first labels of small loss", early),
        ("first labels of small loss", agreed),
        ("soft labels of one teacher", single),
        ("soft labels of one teacher", agreed),
    )
    claims = []
    for world in TABLE_WORLDS.values():
        version = 1 if world == "short" else 2
        for more, less in pairs:
            for metric in (STEP_RECALL, NARRATION_RECALL):
                claim = Claim(
                    f"{more} above {less}, version {version}, {metric.split()[0]}",
                    metric,
                    more=LABELLER_TRIALS[more].changed(world=world),
                    less=LABELLER_TRIALS[less].changed(world=world),
                )
                claims.append(claim)
    return claims


def _head_claims() -> list[Claim]:
    own, *others = unshown_rows()
    claims = []
    for row in others:
        for kind in ("recipe", "step", "narration"):
            statement = f"the head: {row.name} above {own.name}, {kind}"
            claims.append(Claim(statement, f"{kind} AUC head", more=row.trial, less=own.trial))
    return claims


EXPLAINED_CLAIMS = _explained()
