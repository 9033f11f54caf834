"""The sequence baseline: its form, what is malformed, and that it learns a batch by heart."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lab.procx.validation import BestWeights
from lab.procx.vid2seq import (
    NO_TIMES,
    NO_WORDS,
    ONE_TIME,
    REVERSED_TIMES,
    SPARE_TIMES,
    TimedVocabulary,
    Vid2Seq,
    Vid2SeqSample,
    Vid2SeqSettings,
    VideoInput,
    caption_context,
    decode_events,
    encode_events,
    pack_sequences,
    predict_steps,
    train_vid2seq,
    vid2seq_sample,
)
from stepline.errors import ShapeError
from stepline.models.procx.batch import StepSample
from stepline.models.procx.settings import VocabularySettings
from stepline.models.procx.vocabulary import BEGIN_TOKEN, END_TOKEN, PAD_TOKEN, train_vocabulary
from stepline.models.training.settings import TrainSettings
from stepline.records import Sentence, Span

SENTENCES = [
    "cut the onion into thin rings",
    "fry the onion in butter",
    "fry the onion in oil, then add garlic",
    "crack 2 eggs into the pan",
    "serve",
    "serve the eggs with toast",
]
VOCABULARY = train_vocabulary(SENTENCES, VocabularySettings(size=300, rare=1))
ALPHABET = TimedVocabulary(VOCABULARY, 10)
WORDS = VOCABULARY.encode(SENTENCES[0])
TINY = Vid2SeqSettings(
    features=8,
    rows=6,
    width=32,
    heads=4,
    video_layers=1,
    speech_layers=1,
    writer_layers=1,
    feed_forward=64,
    dropout=0.0,
    longest=64,
    longest_speech=40,
    label_smoothing=0.0,
    bins=10,
)


def t(place):
    return len(VOCABULARY) + place


def watched(rows=5, duration=100.0, said=None, seed=0):
    values = np.random.default_rng(seed).standard_normal((rows, 8)).astype(np.float32)
    return VideoInput(values, duration, said)


def said(*texts):
    return tuple(
        Sentence(text=text, span=Span(10.0 * n, 10.0 * n + 5)) for n, text in enumerate(texts)
    )


def network(seed=0):
    torch.manual_seed(seed)
    return Vid2Seq(TINY, len(ALPHABET)).eval()


def test_a_sequence_is_start_end_words_in_the_order_of_time():
    events = [(50.0, 70.0, SENTENCES[4]), (0.0, 25.0, SENTENCES[0])]
    assert encode_events(events, 100.0, ALPHABET) == [
        t(0),
        t(2),
        *WORDS,
        t(5),
        t(6),
        *VOCABULARY.encode(SENTENCES[4]),
    ]


def test_what_is_written_is_read_back_to_the_bin():
    events = ((0.0, 20.0, SENTENCES[0]), (20.0, 30.0, SENTENCES[1]), (90.0, 100.0, SENTENCES[5]))
    parsed = decode_events(
        [BEGIN_TOKEN, *encode_events(events, 100.0, ALPHABET), END_TOKEN, *WORDS], 100.0, ALPHABET
    )
    assert parsed.events == events
    assert parsed.dropped == ()


def test_times_outside_of_the_video_are_clipped_and_no_step_is_without_length():
    assert encode_events([(-5.0, 300.0, "")], 100.0, ALPHABET) == [t(0), t(9)]
    assert decode_events([t(4), t(4), *WORDS], 100.0, ALPHABET).events == (
        (40.0, 50.0, SENTENCES[0]),
    )


@pytest.mark.parametrize(
    ("tokens", "reasons"),
    [
        ([*WORDS], [NO_TIMES]),
        ([t(1), *WORDS], [ONE_TIME]),
        ([t(3), t(2), *WORDS], [REVERSED_TIMES]),
        ([t(1), t(2)], [NO_WORDS]),
        ([t(1), t(2), END_TOKEN, *WORDS], [NO_WORDS]),
        ([t(1)], [ONE_TIME]),
        ([END_TOKEN, t(1), t(2), *WORDS], []),
        ([PAD_TOKEN, BEGIN_TOKEN], []),
        ([], []),
    ],
)
def test_what_cannot_be_a_step_is_left_out_with_its_reason(tokens, reasons):
    parsed = decode_events(tokens, 100.0, ALPHABET)
    assert parsed.events == ()
    assert [one.reason for one in parsed.dropped] == reasons


def test_of_many_times_the_last_two_are_taken():
    parsed = decode_events([t(9), t(0), t(1), t(2), *WORDS], 100.0, ALPHABET)
    assert parsed.events == ((10.0, 30.0, SENTENCES[0]),)
    assert [one.reason for one in parsed.dropped] == [SPARE_TIMES]


def test_a_malformed_step_does_not_take_the_next_one_with_it():
    parsed = decode_events(
        [*WORDS, t(5), *WORDS, t(8), t(2), *WORDS, t(6), t(7), *WORDS], 100.0, ALPHABET
    )
    assert parsed.events == ((60.0, 80.0, SENTENCES[0]),)
    assert [one.reason for one in parsed.dropped] == [NO_TIMES, ONE_TIME, REVERSED_TIMES]


def test_a_token_of_another_vocabulary_is_refused():
    with pytest.raises(ShapeError, match="not one of"):
        decode_events([t(10)], 100.0, ALPHABET)


def test_long_sequences_are_cut_and_counted():
    samples = [
        Vid2SeqSample("a", watched(), ((0.0, 9.0, SENTENCES[0]), (10.0, 20.0, SENTENCES[1])))
    ]
    made = pack_sequences(samples, ALPHABET, 5)
    assert made.targets.shape == (1, 5)
    assert made.truncated == 1
    assert not (made.targets == END_TOKEN).any()


def test_writing_word_by_word_is_the_same_as_reading_in_one_pass():
    model = network()
    videos = [watched(said=said("cut the onion"), seed=1), watched(seed=2)]
    tokens = torch.tensor(
        [[BEGIN_TOKEN, t(1), t(2), *WORDS[:3]], [BEGIN_TOKEN, t(0), t(9), *WORDS[:3]]]
    )
    with torch.no_grad():
        context = caption_context(model, videos, ALPHABET)
        whole = model(tokens, context)
        writing = model.begin(context)
        steps = [model.step(tokens[:, place], writing) for place in range(tokens.shape[1])]
    assert_close(torch.stack(steps, dim=1), whole, atol=1e-5, rtol=1e-4)


def test_speech_is_heard_and_its_padding_is_not():
    model = network()
    tokens = torch.tensor([[BEGIN_TOKEN, t(1)]])
    with torch.no_grad():
        alone = model(
            tokens, caption_context(model, [watched(said=said("cut the onion"))], ALPHABET)
        )
        silent = model(tokens, caption_context(model, [watched()], ALPHABET))
        both = [watched(said=said("cut the onion")), watched(said=said(*SENTENCES), seed=3)]
        padded = model(tokens.expand(2, -1), caption_context(model, both, ALPHABET))
    assert_close(padded[:1], alone, atol=1e-5, rtol=1e-4)
    assert (alone - silent).abs().max() > 1e-3


def test_a_batch_is_learnt_to_its_times_and_word_for_word(tmp_path):
    events = [
        tuple((30.0 * n, 30.0 * n + 20, SENTENCES[(seed + n) % 6]) for n in range(seed))
        for seed in range(4)
    ]
    samples = [
        Vid2SeqSample(str(seed), watched(seed=seed), steps) for seed, steps in enumerate(events)
    ]
    settings = TrainSettings(epochs=150, batch=4, learning_rate=1e-2, readers=0, save_every=10_000)
    model = train_vid2seq(samples, tmp_path, vocabulary=ALPHABET, model=TINY, settings=settings)
    found = predict_steps(model, ALPHABET, [one.video for one in samples])
    assert [one.events for one in found][1:] == events[1:]
    assert found[0].events == ()


def test_validation_keeps_the_best_network_and_ends_a_training_that_gains_no_more(tmp_path):
    spans = ((0.0, 20.0), (30.0, 50.0))
    video = watched()
    samples = [StepSample("a", video.values, video.duration, spans, tuple(SENTENCES[:2]))]
    best = BestWeights()
    curve = []
    settings = TrainSettings(
        epochs=400,
        batch=1,
        learning_rate=1e-2,
        readers=0,
        save_every=10_000,
        score_every=20,
        patience=2,
    )
    model = train_vid2seq(
        [vid2seq_sample(sample) for sample in samples],
        tmp_path,
        vocabulary=ALPHABET,
        model=TINY,
        settings=settings,
        scorer=best.vid2seq_scorer(samples, ALPHABET),
        report=curve.append,
    )
    scores = [progress.score for progress in curve if progress.score is not None]
    # all is learnt, and two scores more are not above it
    assert max(scores) == scores[-3] == pytest.approx(1.0, abs=0.02)
    assert curve[-1].step < curve[-1].steps
    # what is kept is of the best score, not of the last
    last_bias = model.bias.clone()
    best.restore(model)
    assert not torch.equal(model.bias, last_bias)
    (steps,) = predict_steps(model, ALPHABET, [video])
    assert steps.events == tuple(
        (*span, text) for span, text in zip(spans, SENTENCES[:2], strict=True)
    )


def test_without_a_score_a_network_stays_as_it_is():
    model = network()
    before = model.bias.clone()
    BestWeights().restore(model)
    assert torch.equal(model.bias, before)
    best = BestWeights()
    best.keep(model)
    with torch.no_grad():
        model.bias += 1.0
    best.restore(model)
    assert torch.equal(model.bias, before)


def test_a_video_without_rows_has_no_step():
    (none, some) = predict_steps(network(), ALPHABET, [watched(rows=0), watched()])
    assert none.events == ()
    assert none.dropped == ()
    assert len(some.events) + len(some.dropped) > 0


def test_other_shapes_are_refused():
    model = network()
    with pytest.raises(ShapeError, match="resize"):
        model.context(torch.zeros(1, 5, 8))
    with pytest.raises(ShapeError, match="speech"):
        model.context(torch.zeros(1, 6, 8), torch.zeros(1, 41, dtype=torch.int64))
    with pytest.raises(ShapeError, match="cut the sequences"):
        model(torch.zeros(1, 65, dtype=torch.int64), model.context(torch.zeros(1, 6, 8)))
