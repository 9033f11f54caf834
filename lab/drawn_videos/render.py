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

from lab.drawn_videos.camera import Picture
from lab.drawn_videos.scene_renderer import SceneRenderer
from lab.drawn_videos.script import Script, Shot
from lab.drawn_videos.settings import RenderSettings
from lab.drawn_videos.speech import (
    RATE,
    Samples,
    choose_voice,
    loudness_envelope,
    mix_sound,
    schedule_utterances,
    synthesize_speech,
)
from stepline.files.atomic_files import atomic_path
from stepline.records import Span

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import OutputContainer

log = logging.getLogger(__name__)

# BT.601: weights of red, green and blue.
BLUE_CHROMA_WEIGHTS = np.asarray([-37.797, -74.203, 112.0], np.float32)
RED_CHROMA_WEIGHTS = np.asarray([112.0, -93.786, -18.214], np.float32)
SOUND_BLOCK = 1024  # samples handed to the encoder together; AAC's own frame
TAIL_SECONDS = 0.4  # of picture after the last word


def render(script: Script, path: Path, settings: RenderSettings | None = None) -> Script:
    """Draw and speak a script into `path` (mp4) and return it with the real spoken spans.

    The same script, settings and versions of the encoders give the same bytes. Raises MediaError
    without espeak-ng.
    """
    settings = settings or RenderSettings()
    began = time.monotonic()
    spoken = with_spoken_times(script, settings)
    voice = script.voice or choose_voice(script.seed)
    sound, speech = mix_sound(spoken.utterances, voice, spoken.duration, script.seed)
    with atomic_path(path) as partial:
        _encode(spoken, partial, settings, sound, speech)
    log.info("%s: drew %.1f s in %.1f s", path, spoken.duration, time.monotonic() - began)
    return spoken


def with_spoken_times(script: Script, settings: RenderSettings) -> Script:
    """Return the script with its utterances spoken one after the other.

    The video is long enough for the last of them.
    """
    voice = script.voice or choose_voice(script.seed)
    lengths = []
    for utterance in script.utterances:
        sound = synthesize_speech(utterance.text, voice)
        lengths.append(len(sound) / RATE)
    utterances = schedule_utterances(script.utterances, lengths)

    # whole frames, and the last shot lasts to the end
    end = script.duration
    for utterance in utterances:
        if utterance.span is not None:
            end = max(end, utterance.span.end + TAIL_SECONDS)
    duration = math.ceil(end * settings.frame_rate - 1e-6) / settings.frame_rate
    last = script.shots[-1]
    longer = Shot(span=Span(last.span.start, duration), scene=last.scene)

    fields = dict(script)
    fields["utterances"] = tuple(utterances)
    fields["duration"] = duration
    fields["shots"] = (*script.shots[:-1], longer)
    return Script.model_validate(fields)


def _encode(
    script: Script, path: Path, settings: RenderSettings, sound: Samples, speech: Samples
) -> None:
    import av

    frame_rate = settings.frame_rate
    frames = round(script.duration * frame_rate)
    loudness = loudness_envelope(speech, frame_rate, frames)
    renderer = SceneRenderer(script.seed, settings)
    action_spans = _action_spans(script.shots)
    with av.open(
        str(path),
        "w",
        format="mp4",
        container_options={"fflags": "+bitexact", "movflags": "+faststart"},
    ) as out:
        picture = out.add_stream("h264", rate=frame_rate, options=_x264_options(settings))
        picture.width = settings.width
        picture.height = settings.height
        picture.pix_fmt = "yuv420p"
        picture.gop_size = 4 * frame_rate
        voice_track = out.add_stream(
            "aac", rate=RATE, layout="mono", options={"flags": "+bitexact"}
        )
        voice_track.bit_rate = settings.sound_bits

        # frame by frame, each with the sound up to its end
        shot_index = 0
        sound_end = 0
        for number in range(frames):
            now = number / frame_rate
            while shot_index + 1 < len(script.shots) and now >= script.shots[shot_index].span.end:
                shot_index += 1
            start, end = action_spans[shot_index]
            scene = script.shots[shot_index].scene
            image = renderer.frame(scene, now - start, end - start, float(loudness[number]), number)
            frame = av.VideoFrame.from_ndarray(_yuv420p_planes(image), format="yuv420p")
            frame.pts = number
            frame.time_base = Fraction(1, frame_rate)
            out.mux(picture.encode(frame))
            frame_end = round((now + 1 / frame_rate) * RATE)
            sound_end = _encode_sound(out, voice_track, sound, sound_end, frame_end)
        _encode_sound(out, voice_track, sound, sound_end, len(sound) + SOUND_BLOCK)
        out.mux(picture.encode(None))
        out.mux(voice_track.encode(None))


def _yuv420p_planes(image: Picture) -> Picture:
    """Return a frame as yuv420p planes, (1.5 H, W): BT.601, limited range, rounded.

    The conversion of swscale did not give the same bytes every time.
    """
    height, width, _ = image.shape
    red = image[..., 0].astype(np.float32)
    green = image[..., 1].astype(np.float32)
    blue = image[..., 2].astype(np.float32)
    luma = 16.5 + (65.481 * red + 128.553 * green + 24.966 * blue) / 255.0
    blocks = image.reshape(height // 2, 2, width // 2, 2, 3)
    half = blocks.astype(np.float32).mean((1, 3))  # (H/2, W/2, 3)
    blue_chroma = 128.5 + half @ BLUE_CHROMA_WEIGHTS / 255.0
    red_chroma = 128.5 + half @ RED_CHROMA_WEIGHTS / 255.0
    flat = np.concatenate([plane.ravel() for plane in (luma, blue_chroma, red_chroma)])
    return flat.astype(np.uint8).reshape(height * 3 // 2, width)


def _x264_options(settings: RenderSettings) -> dict[str, str]:
    """Return x264's options.

    With macroblock trees on, the same frames gave other bytes from run to run.
    """
    return {
        "crf": str(settings.quality),
        "preset": "faster",
        "x264-params": "mbtree=0",
        "threads": str(settings.threads),
        "flags": "+bitexact",
    }


def _encode_sound(
    out: "OutputContainer", track: "AudioStream", sound: Samples, start: int, end: int
) -> int:
    """Encode the sound from one sample to another and return where the encoded sound ends.

    It encodes whole blocks. The last block of the sound may be short.
    """
    import av

    while start < len(sound) and start + SOUND_BLOCK <= end:
        block = np.ascontiguousarray(sound[None, start : start + SOUND_BLOCK])
        frame = av.AudioFrame.from_ndarray(block, format="fltp", layout="mono")
        frame.sample_rate = RATE
        frame.pts = start
        frame.time_base = Fraction(1, RATE)
        out.mux(track.encode(frame))
        start += block.shape[1]
    return start


def _action_spans(shots: Sequence[Shot]) -> list[tuple[float, float]]:
    """Return when the action of every shot begins and ends.

    A cut to another camera does not begin the action again.
    """
    starts: list[float] = []
    for index, shot in enumerate(shots):
        continues = index > 0 and _same_action(shots[index - 1], shot)
        starts.append(starts[-1] if continues else shot.span.start)
    ends = [shot.span.end for shot in shots]
    for index in range(len(shots) - 2, -1, -1):
        if _same_action(shots[index], shots[index + 1]):
            ends[index] = ends[index + 1]
    return list(zip(starts, ends, strict=True))


def _same_action(first: Shot, second: Shot) -> bool:
    """Say whether two shots show one action, perhaps through another camera."""
    first_scene = first.scene.model_copy(update={"camera": "wide"})
    second_scene = second.scene.model_copy(update={"camera": "wide"})
    return first_scene == second_scene
