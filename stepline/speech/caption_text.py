"""Removes markup, speaker marks and sound descriptions from the text of captions."""

import html
import re
from collections import Counter
from collections.abc import Collection, Sequence

from stepline.records import Word

# <i>, <v Anna>, <c.red>, <font color="red">: the names of SubRip and WebVTT. Others are words.
TAG_PATTERN = re.compile(
    r"</?(?:[biucvaps]|em|strong|font|span|div|br|lang|ruby|rt|rp|tt|sub|sup)"
    r"(?:[.\s/:][^<>]{0,200})?>",
    re.IGNORECASE,
)
INLINE_CLOCK = re.compile(r"<(?:\d{1,6}:)?\d{1,4}:\d{1,2}(?:[.,]\d{1,9})?>")
OVERRIDE_PATTERN = re.compile(r"\{\\[^{}]{0,500}\}")  # of SubStation Alpha: {\an8}
SPEAKER_MARK = re.compile(r"^(?:\s*(?:>>+|-|–|—)\s+)+", re.MULTILINE)
# "Anna Smith (Host): " and "[SPEAKER_00]: " of Zoom, Teams, Meet and WhisperX
SPEAKER_LABEL = re.compile(
    r"^[^\S\n]*(?=[^:：\n]{0,60}[^\W\d_])([^\s:：][^:：\n]{0,60}?)[^\S\n]*(?::(?=\s|$)|：)[^\S\n]*",
    re.MULTILINE,
)
BRACKET_PATTERN = re.compile(
    r"\[[^\[\]]{0,120}\]|\([^()]{0,120}\)|【[^【】]{0,120}】|（[^（）]{0,120}）"
)
SONG_MARKS = re.compile(r"♪[^♪]{0,200}♪|[♪♫]")
# words that name a sound wherever they are in a bracket
SOUND_WORD = re.compile(
    r"\b(?:music|song|singing|applause|laugh\w*|giggl\w*|chuckl\w*|cheer\w*|sigh\w*"
    r"|cough\w*|sneez\w*"
    r"|gasp\w*|groan\w*|scream\w*|sobs|sobbing|silence|silent|inaudible|unintelligible"
    r"|indistinct|crosstalk"
    r"|bleep\w*|beep\w*|noises?|blank_audio|m[uú]sica|musik|musique|muziek|muzyka|m[uü]zik"
    r"|musiikki|hudba"
    r"|музыка|музика|aplausos?|applaus|applaudissements|applausi|аплодисменты|risas|risos"
    r"|risate|rires"
    r"|gelächter|смех)\b|音楽|音乐|音樂|음악|拍手|鼓掌|掌声|掌聲|박수|笑|웃음|موسيقى|संगीत",
    re.IGNORECASE,
)
# the last word of a bracket that describes a sound: "oil sizzling", "door creaks"
SOUND_ENDING = re.compile(
    r"\b(?:play|hum|clap|whistl|bark|meow|chirp|buzz|hiss|ring|ding|chim|click|clatter"
    r"|clank|clink|crackl"
    r"|sizzl|rustl|rumbl|thud|knock|bang|slam|creak|squeak|splash|whirr?|whoosh|chatter"
    r"|snor|growl|rattl"
    r"|shout|yell|whisper|murmur|mumbl|cry|exhal|inhal|yawn|sniff|grunt|roar|thunder|gurgl|bubbl)"
    r"(?:e?s|(?:[mngpt])?ing)$",
    re.IGNORECASE,
)
SPOKEN_LANGUAGE = re.compile(
    r"(?:foreign|foreign language|(?:speaking|speaks) \w+)$", re.IGNORECASE
)


def strip_markup(text: str) -> str:
    """Return a subtitle text without tags and style overrides, with HTML entities replaced."""
    without_tags = INLINE_CLOCK.sub("", TAG_PATTERN.sub("", text))
    return html.unescape(OVERRIDE_PATTERN.sub("", without_tags))


def strip_speaker_marks(text: str) -> str:
    """Return a caption text without the dashes and arrows that mark a new speaker.

    Only marks at the start of a line are removed.
    """
    return SPEAKER_MARK.sub("", text)


def find_speaker_labels(texts: Sequence[str]) -> list[str]:
    """Return the texts before a colon that name speakers, in the order of their first appearance.

    They are names that repeat and begin most of the captions, and names with a role in brackets
    that repeat. Where each caption begins with a name, names that appear once are returned too.

    texts: the texts of the captions of a file.
    """
    matches = [SPEAKER_LABEL.match(text) for text in texts]
    counts = Counter(match[1] for match in matches if match is not None)
    repeated = [label for label, count in counts.items() if count > 1]
    if 2 * sum(counts[label] for label in repeated) <= len(texts):
        return [label for label in repeated if label.endswith((")", "]", "）"))]
    return list(counts) if all(matches) else repeated


def strip_speaker_labels(text: str, labels: Collection[str]) -> str:
    """Return a caption text without the labels that begin its lines."""
    return SPEAKER_LABEL.sub(lambda match: "" if match[1] in labels else match[0], text)


def strip_sounds(text: str) -> str:
    """Return a caption text without sound descriptions: "[Music]", "(applause)", note signs.

    Line breaks and other text in brackets are kept.
    """
    parts = []
    last = 0
    for start, end in _sound_ranges(text):
        parts += [text[last:start], " "]
        last = end
    return "".join([*parts, text[last:]])


def words_without_sounds(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the timed words without those that belong to a sound description such as "[Music]"."""
    sounds = _sound_ranges("".join(word.text for word in words))
    remaining = []
    position = 0
    number = 0
    for word in words:
        # where it begins, behind its space
        word_start = position + len(word.text) - len(word.text.lstrip())
        position += len(word.text)
        while number < len(sounds) and sounds[number][1] <= word_start:
            number += 1
        # A word that goes on behind the sound stays.
        is_in_sound = number < len(sounds) and sounds[number][0] <= word_start
        if not is_in_sound or position > sounds[number][1]:
            remaining.append(word)
    return tuple(remaining)


def _sound_ranges(text: str) -> list[tuple[int, int]]:
    """Return the (start, end) character ranges of the sound descriptions in a text, in order."""
    ranges = [match.span() for match in SONG_MARKS.finditer(text)]
    for match in BRACKET_PATTERN.finditer(text):
        if _is_sound_description(match.group()[1:-1]):
            ranges.append(match.span())
    separate: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if not separate or start >= separate[-1][1]:
            separate.append((start, end))
    return separate


def _is_sound_description(content: str) -> bool:
    """Return whether the content of brackets is a sound description or empty (a bleeped word)."""
    stripped = " ".join(content.split()).strip(" .,!~*…")
    if not any(letter.isalnum() for letter in stripped):
        return True
    patterns = (SOUND_WORD, SOUND_ENDING, SPOKEN_LANGUAGE)
    return any(pattern.search(stripped) for pattern in patterns)
