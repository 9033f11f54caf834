"""Silent videos that a tiny ProcX learns in seconds: each kind of step has its look; and a
command's arguments."""

import json

import numpy as np
from option_words import option_words

from stepline.features import FeatureWriter
from stepline.models.procx.batch import StepSample
from stepline.models.procx.settings import ProcxRunSettings
from stepline.records import FeatureSequence, Record, Sentence, Span, Step, Transcript, Video
from stepline.settings import load_settings

WIDTH, SECONDS = 8, 24
DOINGS = ("cut the onion", "fry the bacon", "boil the water", "add the salt")
OPTIONS = (
    "model.rows=16 model.attention.width=16 model.attention.heads=2 model.attention.levels=2 "
    "model.attention.points=2 model.encoder_layers=1 model.decoder_layers=2 "
    "model.feed_forward=32 model.dropout=0.0 model.queries=6 model.most_steps=4 "
    "model.captioner.width=16 model.captioner.heads=2 model.captioner.text_layers=1 "
    "model.captioner.joint_layers=1 model.captioner.feed_forward=32 "
    "model.captioner.projection=8 model.captioner.dropout=0.0 model.captioner.longest=12 "
    "train.device=cpu"
).split()
TINY = load_settings(ProcxRunSettings, None, OPTIONS).model.model_copy(update={"features": WIDTH})


def records(count=6, seed=0):
    """Return videos of 24 s with two steps of people, swapped steps with what was said, and speech;
    no features."""
    chance = np.random.default_rng(seed)
    made = []
    for number in range(count):
        kinds = chance.permutation(len(DOINGS))[:2]
        starts = (2.0 + number % 3, 13.0 + number % 2)
        spans = [Span(start, start + 6.0) for start in starts]
        said, marked, steps = [], [], []
        for k, (kind, span) in enumerate(zip(kinds, spans, strict=True)):
            said.append(Sentence(text=f"now we {DOINGS[kind]}", span=span))
            marked.append(Step(id=str(k), text=DOINGS[kind], spans=(span,)))
            told = {"said": span, "alternatives": (said[-1].text,), "sources": (k,)}
            steps.append(marked[-1].model_copy(update=told))
        transcript = Transcript(language="en", sentences=tuple(said))
        video = Video(id=f"v{number}", duration=float(SECONDS))
        told = {"transcript": transcript, "reference": tuple(marked), "steps": tuple(steps)}
        made.append(Record(id=video.id, video=video, **told))
    return made


def features(record):
    """Return (24, 8) rows: noise, and the look of a step while it is shown."""
    chance = np.random.default_rng([int(record.id[1:]), 7])
    values = 0.2 * chance.normal(size=(SECONDS, WIDTH)).astype(np.float32)
    for step in record.reference:
        span = step.spans[0]
        values[int(span.start) : int(span.end), DOINGS.index(step.text)] += 2.0
    return FeatureSequence(values, 1.0, "drawn")


def samples(count=6):
    """Return the videos as a network takes them, in memory."""
    made = []
    for record in records(count):
        spans = tuple((step.spans[0].start, step.spans[0].end) for step in record.reference)
        texts = tuple(step.text for step in record.reference)
        made.append(StepSample(record.id, features(record).values, float(SECONDS), spans, texts))
    return made


def write_videos(folder, count=6):
    """Write a store of features and an annotation file in YouCook2's flat form; return their
    paths."""
    writer, tree = FeatureWriter(folder / "store"), {}
    for record in records(count):
        found = features(record)
        writer.add(record.id, found.values, rate=found.rate, backbone=found.backbone)
        spans = [[step.spans[0].start, step.spans[0].end] for step in record.reference]
        texts = [step.text for step in record.reference]
        tree[record.id] = {"duration": SECONDS, "timestamps": spans, "sentences": texts}
    writer.flush()
    (folder / "yc2_train.json").write_text(json.dumps(tree))
    return folder / "store", folder / "yc2_train.json"


def train_command(store, steps, out, *settings, options=()):
    """Return the arguments of `stepline train procx`; settings: key=value."""
    sets = [part for each in (*OPTIONS, *settings) for part in ("--set", each)]
    files = option_words(features=str(store), steps=str(steps), out=str(out))
    return ["train", "procx", *files, *sets, *options]
