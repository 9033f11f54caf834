"""Records, features and text vectors become samples; what does not fit is left out with its
reason."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from lab.simulate import SimulationSettings, simulate, write_dataset
from stepline.errors import DatasetError, ShapeError
from stepline.features import FeatureStore, FeatureWriter, RowTexts, import_features
from stepline.models.nasva import dataset as reasons
from stepline.models.nasva.dataset import gather_samples, make_label_matrix, make_labelled_sample
from stepline.models.nasva.settings import AlignerDataSettings
from stepline.models.training import sources as gather_reasons
from stepline.models.training.sources import (
    LabelledTexts,
    iterate_labelled_texts,
    load_text_encoder,
    read_labelled_texts,
    store_text_vectors,
)
from stepline.records import FeatureSequence, Record, Sentence, Span, Step, Transcript, Video
from stepline.settings import validate
from stepline.storage import write_parquet, write_record

WIDTH = 4


def store(folder, **counts):
    """A feature store of videos with that many rows."""
    with FeatureWriter(folder) as writer:
        for number, (id, rows) in enumerate(counts.items()):
            writer.add(id, vectors(rows, number), rate=1.0, backbone="clip")
    return FeatureStore(folder)


def vectors(count, seed=0, width=WIDTH):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def told(video="a", *spans, duration=None, kind="step"):
    places = tuple((Span(*span),) if span else () for span in spans)
    return LabelledTexts(
        video, kind, tuple(f"text {number}" for number in range(len(spans))), places, duration
    )


def gather(
    tmp_path, *each, counts, texts=None, settings=AlignerDataSettings(), excluded=frozenset()
):
    features = store(tmp_path / "features", **counts)
    lengths = texts or {one.video: len(one.texts) for one in each if one.texts}
    said = store(tmp_path / "texts", **lengths)
    return gather_samples(
        each, features, {"step": said, "narration": said}, settings, excluded=excluded
    )


def test_a_sample_is_the_video_its_vectors_and_its_labels(tmp_path):
    made = gather(tmp_path, told("a", (1.2, 3.7), None, (5, 6)), counts={"a": 8})
    (sample,) = made
    assert_allclose(sample.video, vectors(8), atol=2e-3)
    assert_allclose(sample.text, vectors(3), atol=2e-3)
    assert [np.flatnonzero(row).tolist() for row in sample.positive] == [[1, 2, 3], [], [5]]
    assert sample.ordered
    assert (made.lengths, made.texts, made.labelled, made.omitted) == ([8], 3, 2, ())
    assert made.get_widths() == (WIDTH, WIDTH)


def test_texts_without_a_label_can_be_left_out(tmp_path):
    settings = AlignerDataSettings(unlabelled="drop")
    (sample,) = gather(
        tmp_path, told("a", None, (1, 3), (99, 100), (5, 6)), counts={"a": 8}, settings=settings
    )
    assert_allclose(sample.text, vectors(4)[[1, 3]], atol=2e-3)
    assert [np.flatnonzero(row).tolist() for row in sample.positive] == [[1, 2], [5]]


def test_a_text_that_ends_past_the_truncation_is_left_out(tmp_path):
    settings = AlignerDataSettings(longest=5)
    given = [told("a", (4, 7), (1, 2), (6, 7), None, (3, 4.5)), told("b", (5, 6))]
    made = gather(tmp_path, *given, counts={"a": 8, "b": 8}, settings=settings)
    assert made.lengths == [5]
    assert [np.flatnonzero(row).tolist() for row in made[0].positive] == [[1], [], [3, 4]]
    assert_allclose(made[0].text, vectors(5)[[1, 3, 4]], atol=2e-3)
    assert [(each.id, each.reason) for each in made.omitted] == [("b", reasons.LABELS_OUTSIDE)]


def test_whatever_does_not_fit_is_reported_and_nothing_takes_its_place(tmp_path):
    given = [
        told("good", (0, 2), (3, 4)),
        told("missing", (0, 2)),
        told("speechless"),
        told("unlabelled", None, None),
        told("long", (0, 2), duration=60.0),
        told("near", (0, 2), duration=12.0),
        told("mute", (0, 2)),
        told("others", (0, 2), (1, 3)),
        told("good", (5, 6)),
        told("test", (0, 2)),
    ]
    counts = dict.fromkeys("good speechless unlabelled long near mute others test".split(), 8)
    texts = {"good": 2, "missing": 1, "unlabelled": 2, "long": 1, "near": 1, "others": 3, "test": 1}
    made = gather(tmp_path, *given, counts=counts, texts=texts, excluded=frozenset({"test"}))
    assert [sample.id for sample in made] == ["good (step)", "near (step)"]
    assert [(each.id, each.reason) for each in made.omitted] == [
        ("missing", gather_reasons.NO_FEATURES),
        ("speechless", reasons.NO_TEXT),
        ("unlabelled", reasons.NO_LABEL),
        ("long", gather_reasons.OTHER_LENGTH),
        ("mute", gather_reasons.NO_VECTORS),
        ("others", reasons.OTHER_TEXTS),
        ("good", gather_reasons.SEEN_TWICE),
        ("test", gather_reasons.EXCLUDED_REASON),
    ]
    assert_allclose(made[0].video, vectors(8, 0), atol=2e-3)
    assert_allclose(made[1].video, vectors(8, 4), atol=2e-3)  # of `near`, the fifth that was stored


def test_features_of_another_width_are_left_out(tmp_path):
    features = store(tmp_path / "video", a=8)
    # as somebody who copies shards together gets it
    with FeatureWriter(tmp_path / "wide") as writer:
        writer.add("b", vectors(8, width=WIDTH + 1), rate=1.0, backbone="clip")
    for path in (tmp_path / "wide").glob("shard-00000.*"):
        path.rename(tmp_path / "video" / path.name.replace("00000", "00001"))
    features = FeatureStore(tmp_path / "video")
    said = store(tmp_path / "texts", a=1, b=1)
    made = gather_samples([told("a", (0, 2)), told("b", (0, 2))], features, {"step": said})
    assert [(each.id, each.reason, each.value) for each in made.omitted] == [
        ("b", gather_reasons.OTHER_WIDTH, "video 5, not 4")
    ]


def test_stored_texts_must_be_those_that_are_described(tmp_path):
    features = store(tmp_path / "video", a=8, b=8)
    with FeatureWriter(tmp_path / "texts") as writer:
        for number, id in enumerate("ab"):
            lines = {"a": ("text 0", "left out", "text 1"), "b": ("something", "else", "text 0")}[
                id
            ]
            rows = vectors(3, number)
            writer.add(id, rows, rate=1.0, backbone="clip", texts=RowTexts(lines))
    said = FeatureStore(tmp_path / "texts")
    given = [told(id, (0, 2), (3, 4)) for id in "ab"]
    made = gather_samples(given, features, {"step": said})
    assert_allclose(made[0].text, vectors(3)[[0, 2]], atol=2e-3)
    assert [(each.id, each.reason) for each in made.omitted] == [("b", reasons.OTHER_TEXTS)]


def test_nothing_left_is_an_error_that_says_why(tmp_path):
    made = gather(tmp_path, told("missing", (0, 2)), counts={"a": 8})
    with pytest.raises(ShapeError, match="left of 1: 1 x there are no features of its video"):
        made.get_widths()


def test_a_video_is_held_out_with_all_its_texts(tmp_path, monkeypatch):
    ids = [f"v{number}" for number in range(40)]
    given = [told(id, (0, 2), kind=kind) for kind in ("narration", "step") for id in ids]
    made = gather(tmp_path, *given, counts=dict.fromkeys(ids, 4))
    kept, held = made.split(0.25)
    assert len(kept) + len(held) == 80
    assert 4 <= len(held.videos) <= 18
    assert not set(kept.videos) & set(held.videos)
    assert made.split(0.25)[1].videos == held.videos
    assert len(made.split(0.0)[1]) == 0
    monkeypatch.setattr("stepline.models.training.batches.MAX_HELD_OUT", 5)
    few = made.split(0.25)[1]
    assert (len(few) <= 5, few.kinds) == (True, {"narration", "step"})


def record(id="v"):
    sentences = (
        Sentence(text="Hello.", span=Span(0, 2)),
        Sentence(text="Cut it.", span=Span(2, 5)),
    )
    steps = (
        Step(id="1", text="cut", said=Span(2, 5), spans=(Span(3, 6), Span(8, 9))),
        Step(id="2", text="mix", said=Span(4, 5)),
        Step(id="3", text="eat"),
    )
    person = (Step(id="1", text="truth", spans=(Span(0, 1), Span(3, 4))),)
    transcript = Transcript(sentences=sentences)
    return Record(id=id, video=Video(id=id), transcript=transcript, steps=steps, reference=person)


def places(told):
    return [[(span.start, span.end) for span in spans] for spans in told.spans]


def test_a_record_reports_what_is_said_and_its_steps_and_never_the_truth():
    (narration,) = iterate_labelled_texts([record()], "narration")
    assert places(narration) == [[(0, 2)], [(2, 5)]]
    (steps,) = iterate_labelled_texts([record()], "step")
    assert (steps.texts, places(steps)) == (("cut", "mix", "eat"), [[(3, 6)], [(4, 5)], []])
    (said,), (shown,) = (iterate_labelled_texts([record()], "step", by) for by in ("said", "shown"))
    assert (places(said), places(shown)) == ([[(2, 5)], [(4, 5)], []], [[(3, 6)], [], []])
    (people,) = iterate_labelled_texts([record()], "step", annotated=True)
    assert (people.texts, places(people)) == (("truth",), [[(0, 1), (3, 4)]])


def test_records_are_read_from_parquet_json_and_folders(tmp_path):
    write_parquet([record("a"), record("b")], tmp_path / "all.parquet")
    (tmp_path / "each").mkdir()
    for id in "ab":
        write_record(record(id), tmp_path / "each" / f"{id}.json")
    for source, kind, ids in (
        ("all.parquet", "step", "ab"),
        ("each", "step", "ab"),
        ("each/a.json", "narration", "a"),
    ):
        found = read_labelled_texts(str(tmp_path / source), kind)
        assert [each.video for each in found] == [*ids]
    with pytest.raises(DatasetError, match="no such file or folder"):
        list(read_labelled_texts(str(tmp_path / "nothing"), "step"))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    simulation = simulate(3, validate(SimulationSettings, {"videos": 6}))
    write_dataset(simulation, folder)
    return simulation, folder


def test_the_released_formats_become_samples(tmp_path, world):
    """As NaSVA's authors train: one folder of video features, one of dicts a kind of text, no other
    annotation."""
    simulation, folder = world
    backbone = simulation.world.settings.backbone
    import_features(folder / "features" / backbone, tmp_path / "video", backbone=backbone)
    for style in ("narration", "step"):
        import_features(folder / "texts" / backbone / style, tmp_path / style)
    features = FeatureStore(tmp_path / "video")
    vectors = {kind: FeatureStore(tmp_path / kind) for kind in ("narration", "step")}
    told = [text for kind in vectors for text in read_labelled_texts(str(tmp_path / kind), kind)]
    made = gather_samples(told, features, vectors)
    assert (len(made), made.omitted) == (12, ())
    by_name = {sample.id: sample for sample in made}
    for planted in simulation.videos:
        found = by_name[f"{planted.id} (step)"]
        assert_allclose(found.video, planted.features().values, atol=2e-3)
        assert_allclose(found.text, planted.vectors("step"), atol=2e-3)
        middles = planted.steps.times.mean(axis=1).astype(int)
        assert found.positive[np.arange(len(middles)), middles].all()


def test_a_dataset_is_read_by_its_name(tmp_path, world):
    simulation, folder = world
    from_reader = list(read_labelled_texts(f"howtostep:{folder / 'howtostep'}", "step"))
    assert {each.video for each in from_reader} == {sample.id for sample in simulation.videos}
    truth = list(read_labelled_texts(f"ht-step:{folder / 'ht-step'}", "step"))
    assert any(len(spans) > 0 for each in truth for spans in each.spans)
    said = read_labelled_texts(f"howto100m:{folder / 'whisperx'}", "narration")
    assert [each.kind for each in said] == ["narration"] * 6


def test_vectors_are_made_once(tmp_path):
    asked = []

    def encode(texts):
        asked.append(tuple(texts))
        return vectors(len(texts), len(asked))

    given = [told("a", (0, 2), (3, 4)), told("b"), told("c", (0, 1))]
    made = store_text_vectors(given, encode, tmp_path, name="mine")
    assert (list(made), made.texts("a").texts) == (["a", "c"], ("text 0", "text 1"))
    again = store_text_vectors(given, encode, tmp_path, name="mine")
    assert len(asked) == 2
    assert_array_equal(again.matrix("c"), made.matrix("c"))
    with pytest.raises(ShapeError, match="need as many vectors"):
        store_text_vectors([told("d", (0, 1))], lambda texts: vectors(3), tmp_path, name="mine")
    with pytest.raises(ShapeError, match="there is no text"):
        store_text_vectors([], encode, tmp_path / "other", name="mine")


def test_the_sentence_encoder_is_found_by_name():
    assert load_text_encoder("minilm")(["cut the lemon"]).shape == (1, 384)


def features(seconds=10, rate=1.0):
    return FeatureSequence(np.ones((int(seconds * rate), 3), np.float32), rate, "test")


def rows(span, rule, **shape):
    return np.flatnonzero(make_label_matrix([[Span(*span)]], features(**shape), rule)[0]).tolist()


@pytest.mark.parametrize(
    ("span", "covering", "inclusive"),
    [
        ((1.2, 3.7), [1, 2, 3], [2, 3]),
        ((0.4, 0.9), [0], []),
        ((0.0, 8.0), [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ((8.5, 14.0), [8, 9], [9]),
        ((2.0, 2.0000001), [2], [2]),
        ((12.0, 15.0), [], []),
    ],
)
def test_the_rules_differ_at_the_ends(span, covering, inclusive):
    assert rows(span, "covering") == covering
    assert rows(span, "inclusive") == inclusive


def test_rows_follow_the_rate_of_the_features():
    assert rows((1.0, 2.0), "covering", rate=2.0) == [2, 3]
    assert rows((1.0, 2.0), "inclusive", rate=2.0) == [2, 3, 4]


def test_a_text_shown_twice_has_both_and_one_shown_nowhere_has_none():
    labels = make_label_matrix([[Span(0.0, 1.0), Span(4.0, 5.0)], []], features(6))
    assert labels.astype(int).tolist() == [[1, 0, 0, 0, 1, 0], [0] * 6]


def test_a_sample_needs_spans_for_every_text():
    texts = np.ones((1, 3), np.float32)
    made = make_labelled_sample("v", features(), texts, [[Span(0.0, 2.0)]])
    assert made.positive.sum() == 2
    with pytest.raises(ShapeError, match="v: 2 text vectors need as many lists of spans, not 1"):
        make_labelled_sample("v", features(), np.ones((2, 3), np.float32), [[]])
