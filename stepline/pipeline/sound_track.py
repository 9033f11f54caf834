"""Which of several sound tracks is heard: that of the language named, in which someone speaks, the
default one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepline.pipeline.request import Request, StepsSettings

if TYPE_CHECKING:
    from stepline.media import MediaInfo, MediaSettings

SECONDS_HEARD = 120.0  # of each track, from the start of the video or its part
VOICE_PROBABILITY = 0.5
# of the voiced time of the track with most of it, from which another counts as spoken as much
AS_VOICED = 0.8
MIN_VOICED_SECONDS = 1.0


@dataclass(frozen=True)
class SoundChoice:
    """The sound track to hear. settings: with its number. notes: a line about the others, where
    there are any."""

    settings: "MediaSettings"
    notes: tuple[str, ...] = ()


def choose_sound_track(request: Request, info: "MediaInfo", settings: StepsSettings) -> SoundChoice:
    """Return which sound track of a video is heard. The order is: the one named in the settings, by
    language, by who speaks, by the file's default."""
    media = settings.media
    count = len(info.sound_languages)
    if count < 2:
        return SoundChoice(media)
    number = media.audio_track
    reason = "as named"
    if number is None:
        number, reason = _best_track(request, info, settings)
        media = media.model_copy(update={"audio_track": number})
    hint = "" if settings.media.audio_track else "; --audio-track N selects another"
    note = f"{count} sound tracks: track {number} is used, {reason}{hint}"
    return SoundChoice(media, (note,))


def _best_track(request: Request, info: "MediaInfo", settings: StepsSettings) -> tuple[int, str]:
    """Return the number of the track to hear, and why it is that one."""
    tracks = list(range(1, len(info.sound_languages) + 1))
    default = info.default_sound_track
    reason = ""
    language = settings.asr.language
    # Tracks of the language that is asked for.
    if language is not None:
        languages = info.sound_languages
        spoken = [number for number in tracks if _is_language(languages, number, language)]
        if spoken:
            tracks = spoken
            reason = f"of language {language}"
    if len(tracks) == 1:
        return tracks[0], reason
    # Among those, the tracks in which someone speaks.
    voiced = {number: _voiced_seconds(request, number, settings) for number in tracks}
    most = max(voiced.values())
    if most >= MIN_VOICED_SECONDS:
        tracks = [number for number in tracks if voiced[number] >= AS_VOICED * most]
        if len(tracks) < len(voiced):
            reason = "in which someone speaks"
    # Of those, the file's default.
    if default in tracks:
        return default, reason or "the default one"
    return tracks[0], reason or "the first one"


def _is_language(languages: tuple[str, ...], number: int, language: str) -> bool:
    """Whether a track is marked as of a language. Tags are of two letters or three: es, spa."""
    tag = languages[number - 1].lower().partition("-")[0]
    return tag in LANGUAGE_TAGS.get(language, (language,))


def _voiced_seconds(request: Request, number: int, settings: StepsSettings) -> float:
    """Return for how long someone speaks at the beginning of a track."""
    from stepline.media import SAMPLE_RATE, AudioBlock, MediaReader
    from stepline.speech.vad import FRAME_SAMPLES, voice_probability

    # Only the beginning is decoded, without pictures.
    media = settings.media.model_copy(update={"audio_track": number})
    reader = MediaReader(
        request.path, frame_rate=None, sound=True, settings=media, part=request.part
    )
    # Frames with a voice are counted. Each is FRAME_SAMPLES long.
    voiced = 0
    for block in reader:
        if isinstance(block, AudioBlock):
            if block.start >= SECONDS_HEARD:
                break
            voiced += int((voice_probability(block.samples) >= VOICE_PROBABILITY).sum())
    return voiced * FRAME_SAMPLES / SAMPLE_RATE


# ISO 639-1 and what files mark it as, ISO 639-2 in both its forms. Others as they are
LANGUAGE_TAGS = {
    "ar": ("ar", "ara"),
    "cs": ("cs", "ces", "cze"),
    "da": ("da", "dan"),
    "de": ("de", "deu", "ger"),
    "el": ("el", "ell", "gre"),
    "en": ("en", "eng"),
    "es": ("es", "spa"),
    "fi": ("fi", "fin"),
    "fr": ("fr", "fra", "fre"),
    "he": ("he", "heb"),
    "hi": ("hi", "hin"),
    "hu": ("hu", "hun"),
    "id": ("id", "ind"),
    "it": ("it", "ita"),
    "ja": ("ja", "jpn"),
    "ko": ("ko", "kor"),
    "nl": ("nl", "nld", "dut"),
    "no": ("no", "nor", "nob"),
    "pl": ("pl", "pol"),
    "pt": ("pt", "por"),
    "ro": ("ro", "ron", "rum"),
    "ru": ("ru", "rus"),
    "sv": ("sv", "swe"),
    "th": ("th", "tha"),
    "tr": ("tr", "tur"),
    "uk": ("uk", "ukr"),
    "vi": ("vi", "vie"),
    "zh": ("zh", "zho", "chi"),
}
