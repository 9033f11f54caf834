"""A script becomes a video file: H.264 and AAC, drawn and spoken.

FROZEN as WORLD_VERSION 1: the grounding is tuned on nothing drawn here, and no drawing changes
after it.
"""

import logging
import math
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from research.drawn_videos.camera import Picture
from research.drawn_videos.scene_renderer import SceneRenderer
from research.drawn_videos.script import Script, Shot
from research.drawn_videos.settings import RenderSettings
from research.drawn_videos.speech import (
    RATE,
    Samples,
    choose_voice,
    loudness_envelope,
    mix_sound,
    schedule_utterances,
    synthesize_speech,
)
from stepline.atomic_files import atomic_path
from stepline.records import Span

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import OutputContainer

log = logging.getLogger(__name__)

SOUND_BLOCK = 1024  # samples handed to the encoder together; AAC's own frame
TAIL = 0.4  # s of picture after the last word


def render(script: Script, path: Path, settings: RenderSettings | None = None) -> Script:
    """Draw and speak a script into `path` (mp4) and return it with the real spoken spans.

    The same script, settings and versions of the encoders give the same bytes. Raises MediaError
    without espeak-ng.
    """
    settings = settings or RenderSettings()
    began = time.monotonic()
    spoken = with_spoken_times(script, settings)
    sound, speech = mix_sound(
        spoken.utterances, script.voice or choose_voice(script.seed), spoken.duration, script.seed
    )
    with atomic_path(path) as partial:
        _encode(spoken, partial, settings, sound, speech)
    log.info("%s: drew %.1f s in %.1f s", path, spoken.duration, time.monotonic() - began)
    return spoken


def with_spoken_times(script: Script, settings: RenderSettings) -> Script:
    """Return the script with its utterances spoken one after the other, long enough for the last of
    them."""
    who = script.voice or choose_voice(script.seed)
    lengths = [len(synthesize_speech(each.text, who)) / RATE for each in script.utterances]
    utterances = schedule_utterances(script.utterances, lengths)
    end = max([script.duration, *(each.span.end + TAIL for each in utterances if each.span)])
    duration = math.ceil(end * settings.frame_rate - 1e-6) / settings.frame_rate
    last = script.shots[-1]
    shots = (*script.shots[:-1], Shot(span=Span(last.span.start, duration), scene=last.scene))
    return Script.model_validate(
        {**dict(script), "utterances": tuple(utterances), "duration": duration, "shots": shots}
    )


def _encode(
    script: Script, path: Path, settings: RenderSettings, sound: Samples, speech: Samples
) -> None:
    import av

    frames = round(script.duration * settings.frame_rate)
    loudness = loudness_envelope(speech, settings.frame_rate, frames)
    stage, action_spans = SceneRenderer(script.seed, settings), _action_spans(script.shots)
    with av.open(
        str(path),
        "w",
        format="mp4",
        container_options={"fflags": "+bitexact", "movflags": "+faststart"},
    ) as out:
        picture = out.add_stream("h264", rate=settings.frame_rate, options=_x264_options(settings))
        picture.width, picture.height, picture.pix_fmt = settings.width, settings.height, "yuv420p"
        picture.gop_size = 4 * settings.frame_rate
        voice_track = out.add_stream(
            "aac", rate=RATE, layout="mono", options={"flags": "+bitexact"}
        )
        voice_track.bit_rate = settings.sound_bits
        shot, sent = 0, 0
        for number in range(frames):
            now = number / settings.frame_rate
            while now >= script.shots[shot].span.end and shot + 1 < len(script.shots):
                shot += 1
            start, end = action_spans[shot]
            image = stage.frame(
                script.shots[shot].scene, now - start, end - start, float(loudness[number]), number
            )
            frame = av.VideoFrame.from_ndarray(_yuv420p_planes(image), format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, settings.frame_rate)
            out.mux(picture.encode(frame))
            sent = _encode_sound(
                out, voice_track, sound, sent, round((now + 1 / settings.frame_rate) * RATE)
            )
        _encode_sound(out, voice_track, sound, sent, len(sound) + SOUND_BLOCK)
        out.mux(picture.encode(None))
        out.mux(voice_track.encode(None))


def _yuv420p_planes(image: Picture) -> Picture:
    """Return a frame as yuv420p planes, (1.5 H, W). The conversion of swscale did not give the same
    bytes every time."""
    height, width, _ = image.shape
    r, g, b = (image[..., channel].astype(np.float32) for channel in range(3))
    luma = 16.5 + (65.481 * r + 128.553 * g + 24.966 * b) / 255.0  # BT.601, limited range, rounded
    half = image.reshape(height // 2, 2, width // 2, 2, 3).astype(np.float32).mean((1, 3))
    blue = 128.5 + half @ np.asarray([-37.797, -74.203, 112.0], np.float32) / 255.0
    red = 128.5 + half @ np.asarray([112.0, -93.786, -18.214], np.float32) / 255.0
    flat = np.concatenate([plane.ravel() for plane in (luma, blue, red)])
    return flat.astype(np.uint8).reshape(height * 3 // 2, width)


def _x264_options(settings: RenderSettings) -> dict[str, str]:
    """Return x264's options. With macroblock trees on, the same frames gave other bytes from run to
    run."""
    return {
        "crf": str(settings.quality),
        "preset": "faster",
        "x264-params": "mbtree=0",
        "threads": str(settings.threads),
        "flags": "+bitexact",
    }


def _encode_sound(
    out: "OutputContainer", track: "AudioStream", sound: Samples, sent: int, until: int
) -> int:
    """Encode the sound up to a sample, in whole blocks (the last may be short), and return how far
    it went."""
    import av

    while sent < len(sound) and sent + SOUND_BLOCK <= until:
        block = np.ascontiguousarray(sound[None, sent : sent + SOUND_BLOCK])
        frame = av.AudioFrame.from_ndarray(block, format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, sent, Fraction(1, RATE)
        out.mux(track.encode(frame))
        sent += block.shape[1]
    return sent


def _action_spans(shots: Sequence[Shot]) -> list[tuple[float, float]]:
    """Return, a shot, when its action begins and ends: a cut to another camera does not begin it
    again."""
    spans: list[tuple[float, float]] = []
    for index, shot in enumerate(shots):
        same = index > 0 and _same_action(shots[index - 1], shot)
        spans.append((spans[-1][0] if same else shot.span.start, shot.span.end))
    for index in range(len(shots) - 2, -1, -1):
        if _same_action(shots[index], shots[index + 1]):
            spans[index] = (spans[index][0], spans[index + 1][1])
    return spans


def _same_action(one: Shot, other: Shot) -> bool:
    """Tell whether two shots show one action, perhaps through another camera."""
    return one.scene.model_copy(update={"camera": "wide"}) == other.scene.model_copy(
        update={"camera": "wide"}
    )
