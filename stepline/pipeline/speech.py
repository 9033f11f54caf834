"""The speech of a video: recognised or read from captions, and limited to the duration of the video."""

from collections.abc import Sequence
from threading import Event

from stepline.errors import CaptionError
from stepline.media import SAMPLE_RATE, AudioBlock, MediaInfo, MediaReader, MediaSettings
from stepline.pipeline.part import crop_transcript
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import Progress, read_ahead, with_progress
from stepline.records import FrozenModel, Rejected, Step, Transcript, covering_span
from stepline.speech import read_captions, transcribe
from stepline.speech.audio_windows import FRAME_SAMPLES, detect_voice
from stepline.speech.whisper import Models

# s past the claimed end of a file up to which words are read. A file may be longer than it claims
MAX_OVERRUN_SECONDS = 60.0
NO_SOUND_REASON = "it has no sound track"
SECONDS_AHEAD = 30  # of sound, decoded while a window is recognised


class Speech(FrozenModel):
    """The speech of a video as text.

    Attributes:
        transcript: sentences with times.
        dropped: sentences that were left out, each with the reason.
        end: the last second of sound that was decoded.
        warnings: warnings that the record will contain.
        audio_track: number of the chosen sound track. None if there is only one track.
    """

    transcript: Transcript
    dropped: tuple[Rejected, ...] = ()
    end: float = 0.0
    warnings: tuple[str, ...] = ()
    audio_track: int | None = None


class SpeechInVideo(FrozenModel):
    """The sentences and steps within the duration of the video.

    Attributes:
        transcript: the sentences that begin before the video ends.
        steps: the steps that cite such sentences, or the user's lines.
        dropped: sentences and steps after the end of the video, each with the reason.
        warnings: warnings that the record will contain.
    """

    transcript: Transcript
    steps: tuple[Step, ...]
    dropped: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()


def sentences_near_video(transcript: Transcript, duration: float) -> Transcript:
    """Return the sentences that begin within the claimed duration of the file, or soon after it.

    Captions of another video may go on for hours. No steps are written from those.
    """
    if duration <= 0:
        return transcript
    return _sentences_before(duration + MAX_OVERRUN_SECONDS, transcript)


def _sentences_before(second: float, transcript: Transcript) -> Transcript:
    """Return the transcript with only the sentences that begin before a second."""
    sentences = [item for item in transcript.sentences if item.span.start < second]
    if len(sentences) == len(transcript.sentences):
        return transcript
    return transcript.model_copy(update={"sentences": tuple(sentences)})


def recognise_speech(
    request: Request,
    info: MediaInfo,
    settings: StepsSettings,
    *,
    models: "Models | None" = None,
    progress: Progress | None = None,
    stop: Event | None = None,
) -> Speech:
    """Return the speech of a video as sentences, by a recogniser or from the video's captions.

    The result is empty without a sound track, and if the settings use only a network on the frames.

    Args:
        request: the video.
        info: streams and duration of the video file.
        settings: settings of all stages of finding steps.
        models: loaded Whisper models that several videos share. None: a model is loaded.
        progress: called with the stage's name, the second reached and the duration in s.
        stop: event that ends the work when it is set. None: the work runs to the end.
    """
    # Captions, or silence, need no recogniser.
    speech = _speech_without_recogniser(request, info, settings)
    if speech is not None:
        return speech
    media, notes = choose_sound_track(request, info, settings)
    reader = MediaReader(
        request.path, frame_rate=None, sound=True, settings=media, part=request.part
    )
    ahead = read_ahead(reader, SECONDS_AHEAD)
    blocks = with_progress(ahead, AudioBlock, "listening", info.duration, progress, stop)
    result = transcribe(blocks, settings.asr, models=models, start=request.start)
    return Speech(
        transcript=result.transcript,
        dropped=result.dropped,
        end=reader.end,
        warnings=notes + reader.warnings + result.warnings,
        audio_track=media.audio_track,
    )


def _speech_without_recogniser(
    request: Request, info: MediaInfo, settings: StepsSettings
) -> Speech | None:
    """Return the speech from captions or an empty transcript, None if a recogniser is needed."""
    # The cases, from the cheapest: no speech wanted, captions given, no sound at all.
    if settings.procx.when == "alone":
        return Speech(transcript=Transcript())
    if request.captions is not None:
        captions = read_captions(request.captions, video_id=request.id, settings=settings.asr)
        return Speech(
            transcript=crop_transcript(captions.transcript, request.part),
            dropped=captions.dropped,
            warnings=captions.warnings,
        )
    if info.has_sound:
        return None
    return Speech(transcript=Transcript(), warnings=(NO_SOUND_REASON,))


def drop_speech_past_end(
    duration: float,
    transcript: Transcript,
    steps: Sequence[Step],
    *,
    keep_all_steps: bool,
    start: float = 0.0,
) -> SpeechInVideo:
    """Return the sentences that begin within the video, and the steps that cite such sentences.

    Args:
        duration: duration of the video, or of its part, in seconds.
        transcript: sentences of the captions, which may be those of another video.
        steps: the steps that were written from the transcript, or the user's lines.
        keep_all_steps: whether a step without sentences is kept, such as a line of the user.
        start: second of the whole video at which its part begins, for reasons and warnings.

    Raises CaptionError if no step is left and most sentences are said after the end.
    """
    shorter = _sentences_before(duration, transcript)
    late = transcript.sentences[len(shorter.sentences) :]  # the others keep their numbers
    if not late:
        return SpeechInVideo(transcript=transcript, steps=tuple(steps))
    # What is late, and the steps that rest on nothing else.
    late_reason = f"said after the video ends at {start + duration:.1f} s"
    reason = f"it is {late_reason}"
    dropped = [Rejected(what="sentence", text=sentence.text, reason=reason) for sentence in late]
    remaining: list[Step] = []
    for original in steps:
        step = _with_sources_inside(original, shorter)
        if original.sources and not step.sources and not keep_all_steps:
            dropped.append(Rejected(what="step", text=step.text, reason=reason))
        else:
            remaining.append(step)
    count = f"{len(late)} of {len(transcript.sentences)} sentences"
    fault = f"{count} are {late_reason}"
    if len(late) > len(shorter.sentences) and not remaining:
        raise CaptionError(f"{fault}, and no step before; give the captions of this video")
    warning = f"{fault} and left out; do the words belong to this video?"
    return SpeechInVideo(
        transcript=shorter, steps=tuple(remaining), dropped=tuple(dropped), warnings=(warning,)
    )


def _with_sources_inside(step: Step, transcript: Transcript) -> Step:
    """Return the step without source sentences that are no longer in the transcript."""
    # The remaining sentences are the first of the video, so a number below their count is valid.
    sources = tuple(index for index in step.sources if index < len(transcript.sentences))
    if sources == step.sources:
        return step
    said = covering_span(transcript.sentences[index].span for index in sources)
    return step.model_copy(update={"sources": sources, "said": said})


TRACK_SAMPLE_SECONDS = 120.0  # of each track, from the start of the video or its part
VOICE_PROBABILITY = 0.5
# of the voiced time of the track with most of it, from which another counts as spoken as much
MIN_VOICED_RATIO = 0.8
MIN_VOICED_SECONDS = 1.0


def choose_sound_track(
    request: Request, info: MediaInfo, settings: StepsSettings
) -> "tuple[MediaSettings, tuple[str, ...]]":
    """Return the media settings with the number of the sound track to use, and a note on the others.

    The first rule that selects a track decides. The rules: the settings name the track, the
    settings name its language, someone speaks in it, it is the default track of the file. Without
    several tracks, the settings are unchanged and there is no note.
    """
    media = settings.media
    count = len(info.sound_languages)
    if count < 2:
        return media, ()
    number = media.audio_track
    reason = "as named"
    if number is None:
        number, reason = _best_track(request, info, settings)
        media = media.model_copy(update={"audio_track": number})
        reason += "; --audio-track N selects another"
    return media, (f"{count} sound tracks: track {number} is used, {reason}",)


def _best_track(request: Request, info: MediaInfo, settings: StepsSettings) -> tuple[int, str]:
    """Return the number of the audio track to recognise, from 1, and the reason for the log.

    Preferred are tracks of the language in the settings, then tracks with much speech, then the
    file's default track. The reason is "" if the file has one track.
    """
    tracks = list(range(1, len(info.sound_languages) + 1))
    default = info.default_sound_track
    reason = ""
    language = settings.asr.language
    # Tracks of the language that is asked for.
    if language is not None:
        # Tags of files have two or three letters: es, spa.
        tags = LANGUAGE_TAGS.get(language, (language,))
        marks = [mark.lower().partition("-")[0] for mark in info.sound_languages]
        spoken = [number for number in tracks if marks[number - 1] in tags]
        if spoken:
            tracks = spoken
            reason = f"of language {language}"
    if len(tracks) == 1:
        return tracks[0], reason
    # Among those, the tracks in which someone speaks.
    voiced = {number: _voiced_seconds(request, number, settings) for number in tracks}
    most = max(voiced.values())
    if most >= MIN_VOICED_SECONDS:
        tracks = [number for number in tracks if voiced[number] >= MIN_VOICED_RATIO * most]
        if len(tracks) < len(voiced):
            reason = "in which someone speaks"
    # Of those, the file's default.
    if default in tracks:
        return default, reason or "the default one"
    return tracks[0], reason or "the first one"


def _voiced_seconds(request: Request, number: int, settings: StepsSettings) -> float:
    """Return the seconds of speech at the beginning of a track."""
    # Only the beginning is decoded, without pictures.
    media = settings.media.model_copy(update={"audio_track": number})
    reader = MediaReader(
        request.path, frame_rate=None, sound=True, settings=media, part=request.part
    )
    # Frames with a voice are counted. Each is FRAME_SAMPLES long.
    voiced = 0
    for block in reader:
        if isinstance(block, AudioBlock):
            if block.start >= TRACK_SAMPLE_SECONDS:
                break
            voiced += int((detect_voice(block.samples) >= VOICE_PROBABILITY).sum())
    return voiced * FRAME_SAMPLES / SAMPLE_RATE


# ISO 639-1 and what files mark it as, ISO 639-2 in both its forms. Others as they are
_LANGUAGE_TEXT = """
ar ara, cs ces cze, da dan, de deu ger, el ell gre, en eng, es spa, fi fin, fr fra fre,
he heb, hi hin, hu hun, id ind, it ita, ja jpn, ko kor, nl nld dut, no nor nob, pl pol,
pt por, ro ron rum, ru rus, sv swe, th tha, tr tur, uk ukr, vi vie, zh zho chi
"""
LANGUAGE_TAGS = {tags.split()[0]: tags.split() for tags in _LANGUAGE_TEXT.split(",")}
