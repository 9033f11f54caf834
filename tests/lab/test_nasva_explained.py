"""What explains NaSVA's orderings: labellers, texts that are not shown, lags, sizes; the benchmarks
that judge them."""

from pathlib import Path

import numpy as np
import pytest

from lab.nasva.claims import EXPLAINED_CLAIMS
from lab.nasva.corpus import simulated
from lab.nasva.rows import LABELLER_TRIALS, NasvaSize, NasvaTrial, of_corpus, of_lag, sized
from lab.nasva.tables import NasvaStudy
from lab.nasva.trials import (
    first_labels,
    median_after_start,
    one_second,
    small_loss_labels,
    soft_labels,
    with_unshown_texts,
)
from stepline.errors import SettingsError
from stepline.models.nasva.dataset import label_matrix
from stepline.records import Span
from stepline.settings import validate

TINY = NasvaSize(
    videos=16,
    held_out=6,
    width=16,
    heads=2,
    feed_forward=16,
    projection=8,
    epochs=1,
    teacher_epochs=1,
)


def test_more_videos_are_seen_in_fewer_epochs():
    found = {
        videos: sized(of_corpus(videos, 0.8), NasvaSize(videos=300), 0).size
        for videos in (100, 300, 1000, 3000)
    }
    assert {
        videos: (size.videos, size.epochs, size.teacher_epochs) for videos, size in found.items()
    } == {100: (100, 8, 4), 300: (300, 8, 4), 1000: (1000, 3, 2), 3000: (3000, 1, 1)}


def test_teachers_live_in_the_world_of_their_student():
    for teacher in of_lag("short-2", 4.0, "start").predecessors:
        assert (teacher.world, teacher.lag, teacher.early) == ("short-2", 4.0, True)


def test_the_lag_of_a_trial_is_that_of_its_world():
    near, far = (simulated(0, "usual", "clean", TINY, "short", lag).videos[3] for lag in (0.0, 4.0))
    assert [step.text for step in near.steps]
    assert [sentence.span for sentence in near.sentences] == [
        sentence.span for sentence in far.sentences
    ]
    assert [sentence.text for sentence in near.sentences] != [
        sentence.text for sentence in far.sentences
    ]


def test_labels_of_small_loss_are_those_that_the_teacher_finds_likely():
    videos = simulated(0, "usual", "clean", TINY).videos[:2]
    labels = first_labels(videos, LABELLER_TRIALS["the early-stopped teacher"].labels)
    sure = []
    for video, places in zip(videos, labels, strict=True):
        rows = label_matrix([[span] if span else [] for span in places], video.features)
        good = np.arange(len(rows)) % 2 == 0  # the teacher thinks likewise of every second text
        sure.append(np.where(rows, np.where(good[:, None], 1.0, -1.0), 0.0).astype(np.float32))
    kept = small_loss_labels(labels, [sure], videos, 0.4)
    texts = [
        (number % 2, span, first)
        for places, before in zip(kept, labels, strict=True)
        for number, (span, first) in enumerate(zip(places, before, strict=True))
    ]
    assert all(span is None for odd, span, _ in texts if odd)
    assert all(span == first for _, span, first in texts if span is not None)
    assert sum(span is not None for _, span, _ in texts) == pytest.approx(0.4 * len(texts), abs=1)


def test_soft_labels_are_drawn_at_their_probability():
    scores = np.zeros((1, 3), np.float32)
    scores[0] = np.log([0.2, 0.5, 0.3]) * 0.07
    (sums,) = soft_labels([[scores]])
    assert sums[0] == pytest.approx([0.2, 0.7, 1.0], abs=1e-5)
    rng = np.random.default_rng(0)
    drawn = np.mean([one_second(sums, rng)[0] for _ in range(4000)], axis=0)
    assert drawn == pytest.approx([0.2, 0.5, 0.3], abs=0.03)
    with pytest.raises(SettingsError, match="soft labels are those of written steps"):
        soft = LABELLER_TRIALS["soft labels of one teacher"]
        validate(NasvaTrial, soft.model_dump() | {"texts": "W"})


def test_unshown_texts_stand_unlabelled_among_the_labelled_ones():
    videos = simulated(0, "usual", "clean", TINY).videos
    labels = first_labels(videos, LABELLER_TRIALS["the early-stopped teacher"].labels)
    samples = with_unshown_texts(videos, labels, "same task", np.random.default_rng(0))
    by_id = {video.id: (video, places) for video, places in zip(videos, labels, strict=True)}
    more = 0
    for sample in samples:
        video, places = by_id[sample.id]
        shown = sample.positive.any(axis=1)
        own = [row for row, span in enumerate(places) if span is not None]
        assert np.array_equal(sample.text[shown], video.step_vectors[own])
        assert (~shown).sum() <= shown.sum()
        more += int((~shown).sum())
    assert more > 0


def test_the_tables_that_explain_run_whole_in_their_small_form(tmp_path: Path):
    lines, judged = NasvaStudy(tmp_path, (0,), ("labellers", "unshown"), None, TINY).run()
    assert all(line.failure is None for line in lines)
    assert len(judged) >= 12
    names = [claim.statement for claim in EXPLAINED_CLAIMS]
    assert len(names) == len(set(names))


def test_labels_are_compared_with_the_start_of_the_nearest_window():
    row = np.zeros((1, 30), bool)
    row[0, 4:8] = row[0, 20:25] = True
    labels = [(Span(18.0, 26.0),)]
    assert median_after_start(labels, [row], [1.0]) == -2.0
    assert np.isnan(median_after_start([(None,)], [row], [1.0]))
