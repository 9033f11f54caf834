"""Records made by hand: a kitchen video as a run would leave it, and one in which every text is
hostile."""

import io

import numpy as np

from stepline import records

SPOKEN = (
    (0.4, 5.2, "Hi everyone, welcome back to my kitchen, today it's iced mint lemonade."),
    (5.6, 11.9, "First bring a cup of water to the boil and stir in the sugar until it dissolves."),
    (12.3, 16.0, "Set the syrup aside to cool completely."),
    (17.1, 21.8, "While that cools, roll the lemons on the counter and cut them in half."),
    (22.0, 26.4, "Then squeeze out all of the juice."),
    (26.9, 30.2, "My grandmother always said that the small ones are the sweetest."),
    (31.0, 36.5, "Tear up a handful of mint and bruise it gently with a spoon."),
    (37.2, 41.6, "Pour the juice and the syrup over the mint."),
    (42.0, 45.1, "Later I'll strain it, you'll see."),
    (46.3, 50.8, "Top it up with cold water and give it a good stir."),
    (51.5, 55.9, "You can chill it in the fridge for an hour if you have the time."),
    (56.4, 61.0, "Fill a tall glass with ice and pour it in."),
    (61.6, 66.2, "Thanks for watching, and don't forget to subscribe."),
)

# text, spans, said, score, sources
STEPS = (
    ("bring a cup of water to the boil", ((6.0, 10.0),), (5.6, 8.4), 0.91, (1,)),
    ("stir in the sugar until it dissolves", ((10.0, 15.0),), (8.4, 11.9), 0.88, (1,)),
    ("set the syrup aside to cool", ((15.0, 18.0),), (12.3, 16.0), 0.63, (2,)),
    ("cut the lemons in half", ((19.0, 23.0), (52.0, 54.0)), (17.1, 21.8), 0.94, (3,)),
    ("squeeze out the juice", ((23.0, 30.0),), (22.0, 26.4), 0.97, (3, 4)),
    ("tear up the mint and bruise it with a spoon", ((32.0, 38.0),), (31.0, 36.5), 0.9, (6,)),
    ("pour the juice and the syrup over the mint", ((38.0, 43.0),), (37.2, 41.6), 0.86, (7,)),
    ("strain the lemonade", ((54.0, 57.5),), (42.0, 45.1), 0.58, (8,)),
    ("top it up with cold water", ((46.0, 52.0),), (46.3, 50.8), 0.82, (9,)),
    ("chill the lemonade in the fridge for an hour", (), (51.5, 55.9), 0.12, (10,)),
    ("fill a tall glass with ice and pour it in", ((57.5, 64.0),), (56.4, 61.0), 0.93, (11,)),
    ("garnish with a slice of lemon", (), None, 0.04, ()),
)

REFERENCE = (
    ("boil the water and melt the sugar", (6.5, 14.5)),
    ("halve the lemons", (19.5, 22.5)),
    ("juice the lemons", (23.5, 30.5)),
    ("bruise the mint", (32.5, 37.5)),
    ("mix everything", (39.0, 51.0)),
    ("strain into a jug", (53.5, 57.0)),
    ("serve over ice", (58.0, 64.0)),
)

SPOT = records.Amount(low=1.0, high=2.0, unit="<b>", text="<i>")

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><script>alert(3)</script>",
    "</style></title><h1>broken out</h1>",
    "{{7*7}} {% raw %}",
    "x" * 10_000,
    "abc \u202e drowssap \u2066 end",
    "a --> b & c <i>d</i> {\\an8}e",
    "first line\n\n1\n00:00:00,000 --> 00:00:09,000\r\nforged cue",
    "<!-- comment ]]> -->\u2028&lt;b&gt;\x07",
)


def make_step(number, text, spans=(), said=None, status=None, score=None, sources=()):
    pairs = tuple(records.Span(*pair) for pair in spans)
    return records.Step(
        id=str(number),
        text=text,
        spans=pairs,
        at=pairs[0].center if pairs else None,
        said=records.Span(*said) if said else None,
        status=status,
        basis="network" if status == "seen" else None,
        score=score,
        sources=sources,
    )


def record_of(*steps, id="r", **video):
    """A record of some steps; video: fields of its video."""
    return records.Record(id=id, video=records.Video(id=id, **video), steps=steps)


def sample_step(number, text, spans, said, score, sources):
    status = "seen" if spans else "said_only" if said else "not_found"
    return make_step(number, text, spans, said, status, score, sources)


def sample_record():
    """A minute of lemonade: ten seen steps, one only said, one that is nowhere; four sentences
    that are no step."""
    sentences = [
        records.Sentence(text=text, span=records.Span(a, b), confidence=0.9)
        for a, b, text in SPOKEN
    ]
    name, path = "mint-lemonade", "videos/mint-lemonade.mp4"
    music = "a stock phrase over music, 66.2-66.9 s"
    channel = "it speaks to the viewer about the channel"
    asr, vision = {"beam": 5, "model": "tiny.en"}, {"rate": 1.0, "size": None}
    curve = {"curve": "whenact", "weight": 0.42}
    return records.Record(
        id=name,
        video=records.Video(id=name, path=path, duration=67.0, title="Iced mint lemonade"),
        transcript=records.Transcript(
            language="en", recogniser="whisper-tiny.en", sentences=tuple(sentences)
        ),
        steps=tuple(sample_step(number, *row) for number, row in enumerate(STEPS, start=1)),
        reference=tuple(
            make_step(f"r{number}", text, (span,)) for number, (text, span) in enumerate(REFERENCE)
        ),
        dropped=(
            records.Rejected(what="sentence", text="Thank you. Thank you.", reason=music),
            records.Rejected(what="step", text="subscribe", reason=channel),
        ),
        warnings=("the file's header claims 71.0 s, but its data ends at 67.0 s",),
        settings={"asr": asr, "vision": vision, "formats": ["html"]},
        models={"asr": "whisper-tiny.en", "vision": "conse", "grounding": curve},
    )


def sample_keyframes(record):
    return {
        step.id: picture_of(number)
        for number, step in enumerate(record.steps, start=1)
        if step.spans
    }


def make_alignment(record, rate=1.0):
    """Return cosines (K, T) with a hill over each step's spans, and noise with a fixed seed."""
    total = record.video.duration
    times = (np.arange(int(total * rate)) + 0.5) / rate
    noise = np.random.default_rng(7).normal(0, 0.035, (len(record.steps), len(times)))
    scores = 0.08 + noise
    for row, step in enumerate(record.steps):
        for rank, span in enumerate(step.spans):
            scores[row] += (0.5 - 0.18 * rank) * np.exp(
                -(((times - span.center) / (span.duration / 1.6 + 1)) ** 2)
            )
    return records.Alignment(
        tuple(step.text for step in record.steps), scores.astype(np.float32), rate, "cosine"
    )


def hostile_step(index, text):
    start = 10.0 * index
    step = make_step(
        text, text, ((start + 2, start + 9),), (start, start + 5), "seen", 0.5, (index,)
    )
    return step.model_copy(update={"alternatives": (text,), "source_text": text, "licence": text})


def hostile_record():
    """Return a record in which every text that a user, a speaker or a model can set is an
    attack."""
    return records.Record(
        id="../<b>\"x' y",
        video=records.Video(
            id="</script><b>",
            duration=10.0 * len(HOSTILE),
            title=HOSTILE[0] + HOSTILE[2],
            task=HOSTILE[1],
        ),
        transcript=records.Transcript(
            language='en"><script>alert(4)</script>',
            recogniser=HOSTILE[1],
            sentences=tuple(
                records.Sentence(text=text, span=records.Span(10.0 * i, 10.0 * i + 5))
                for i, text in enumerate(HOSTILE)
            ),
        ),
        steps=tuple(hostile_step(number, text) for number, text in enumerate(HOSTILE)),
        materials=tuple(records.Material(name=text, at=1.0, amounts=(SPOT,)) for text in HOSTILE),
        tools=tuple(records.Material(name=text, at=2.0) for text in HOSTILE),
        reference=(make_step("r", HOSTILE[1], ((1.0, 4.0),)),),
        dropped=tuple(records.Rejected(what="step", text=text, reason=text) for text in HOSTILE),
        warnings=HOSTILE,
        settings={text: text for text in HOSTILE[:8]},
        models={"a": {text: [text] for text in HOSTILE[:8]}},
    )


def picture_of(number, width=320, height=180):
    """A JPEG that stands for a key frame: a soft gradient with a disc, its colours made from the
    number."""
    from PIL import Image

    y, x = np.mgrid[0:height, 0:width]
    hue = np.array([(97 * number) % 120, (53 * number) % 110, (31 * number) % 90]) + 70
    shade = (0.55 + 0.5 * x / width - 0.25 * y / height)[..., None]
    disc = (
        ((x - width * (0.3 + 0.04 * number)) ** 2 + (y - height * 0.55) ** 2) < (height * 0.28) ** 2
    )[..., None]
    image = np.clip(hue * shade + disc * 60, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=80)
    return stream.getvalue()


def make_video(path, seconds, rate=4, codec="libvpx"):
    """Write a small film of a moving gradient."""
    import av

    y, x = np.mgrid[0:72, 0:128]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 128, 72, "yuv420p"
        for index in range(seconds * rate):
            image = np.stack(
                [(x + index) % 256, (y + 2 * index) % 256, np.full_like(x, 120)], axis=-1
            ).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
