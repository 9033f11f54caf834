"""The encoding of a text: by its mark, as UTF-8, else guessed by the letters that each reading gives.

A guess is for texts that people write. In a Latin script few letters of a word are foreign to
ASCII, in the others all are. Of the readings of its kind, the one with most of a language's usual
letters wins.
"""

import codecs
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple

from stepline.errors import CaptionError
from stepline.limits import MAX_CAPTIONS_BYTES, LimitError, read_limited

ENCODING_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Reading(NamedTuple):
    """An encoding, and the usual letters of a language in it: of a Latin script those beyond ASCII."""

    encoding: str
    letters: str


_RUSSIAN_LETTERS = "оеаинтсрвлкмдпу"
_GREEK_LETTERS = "αοιετσνηυρκπμςόίάέήώ"
# the usual characters of modern texts, by their counts in public frequency lists
_CHINESE_CHARACTERS = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用"
    "道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实把日"
)
_TRADITIONAL_CHARACTERS = (
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作裡用"
    "道行所然家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心她本前開但因只從想實把日"
)
_KOREAN_SYLLABLES = (
    "이다는을의에가고하지로도서한은를기나사어리시대자인스"
    "아그해라있게수일정보주들여요세면만것으니습합러용물"
)
_JAPANESE_KANA = "のにはをたがてとしでいるれさなもんこまらかすりくうよきあっつけせおだみそちめ"

# Where two are as good, the first wins.
LATIN_READINGS = (
    Reading("cp1252", "éèêëàâçîïôùûœ«»"),
    Reading("cp1252", "äöüß"),
    Reading("cp1252", "áéíóúñü¿¡"),
    Reading("cp1252", "ãõáàâçéêíóôú"),
    Reading("cp1252", "àèéìòù"),
    Reading("cp1252", "æøåé"),
    Reading("cp1252", "åäöé"),
    Reading("cp1250", "ąćęłńóśźż"),
    Reading("cp1250", "áčďéěíňóřšťúůýžľĺŕôä"),
    Reading("cp1250", "áéíóöőúüű"),
    Reading("cp1250", "ăâîşţ"),
    Reading("cp1250", "čćđšž"),
    Reading("cp1254", "çğıöşüâ"),
    Reading("cp1252", "ðþáéíóúýæö"),
)
OTHER_READINGS = (
    Reading("cp1251", _RUSSIAN_LETTERS),
    Reading("koi8_r", _RUSSIAN_LETTERS),
    Reading("cp866", _RUSSIAN_LETTERS),
    Reading("iso8859_5", _RUSSIAN_LETTERS),
    Reading("cp1253", _GREEK_LETTERS),
    Reading("cp1255", "יוהלאתרמבשנםחדכע"),
    Reading("cp1256", "اليمنوتربةعدسفهكق"),
    Reading("cp874", "านรอกเงทยลวมสตหแไดค่้ี"),
)
# Two bytes a character. A usual first byte: of the part of the character set that modern texts use.
EAST_ASIAN_READINGS = (
    Reading("gb18030", _CHINESE_CHARACTERS),
    Reading("big5", _TRADITIONAL_CHARACTERS),
    Reading("cp949", _KOREAN_SYLLABLES),
    Reading("cp932", _JAPANESE_KANA),
    Reading("euc_jp", _JAPANESE_KANA),
)
USUAL_FIRST_BYTES = {
    "gb18030": ("gb2312", range(0xA1, 0xD8)),
    "big5": ("big5", range(0xA1, 0xC7)),
    "cp949": ("euc_kr", range(0xA1, 0xC9)),
    "cp932": ("cp932", range(0x81, 0x98)),
    "euc_jp": ("euc_jp", range(0xA1, 0xD0)),
}
MIN_FIRST_BYTE_SHARE = 0.9
# of Japanese kana: other texts have Japanese bytes by chance, in a pair like the one of "It’s"
MIN_KANA_SHARE = 0.3
# from which a reading of one byte a character is better than East Asian without usual characters
MIN_CLEAR_SHARE = 0.6
USUAL_READING = LATIN_READINGS[0]
GUESS_BYTES = 65_536  # of a text that a guess looks at: with bytes beyond ASCII around them
MIN_USUAL_SHARE = 0.15  # of the letters, from which a reading is taken
# A word of another script: no letter of ASCII next to two bytes or more beyond it.
FOREIGN_WORD = re.compile(rb"(?<![A-Za-z\x80-\xff])[\x80-\xff]{2,}(?![A-Za-z\x80-\xff])")
WORD_WITH_FOREIGN_BYTES = re.compile(rb"[A-Za-z]*[\x80-\xff][A-Za-z\x80-\xff]*")
INNER_CAPITAL_WEIGHT = 0.9  # a text in capitals is rare
BROKEN_SHARE = 0.1  # of the characters beyond ASCII: up to this a text is damaged UTF-8


def read_caption_text(path: Path, encoding: str | None = None) -> tuple[str, str]:
    """Return a caption file as text with plain line ends, and how its encoding was guessed.

    encoding: what the user says it is in. The second is "" where nothing had to be guessed.
    Raises CaptionError for what cannot be read, is too large or is not a text.
    """
    try:
        data = read_limited(path, MAX_CAPTIONS_BYTES)
        text, guess = _decode_text(data, encoding)
    except LimitError as error:
        raise CaptionError(f"{path}: {error}; cut this video's part out of it") from error
    except OSError as error:
        raise CaptionError(
            f"{path}: cannot be read ({error.strerror}); give a caption file"
        ) from error
    except UnicodeDecodeError as error:
        problem = f"damaged at byte {error.start}, not {error.encoding}"
        raise CaptionError(f"{path}: {problem}; save it as UTF-8") from error
    except LookupError as error:
        cure = "name one such as cp1251, koi8_r, gb18030, shift_jis"
        raise CaptionError(f"{path}: encoding {encoding!r} is not known; {cure}") from error
    # Binary data, or two bytes per letter without a mark.
    if "\0" in text:
        raise CaptionError(
            f"{path}: holds zero bytes, so it is not caption text; give srt, vtt, csv or json"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n"), guess


def _decode_text(data: bytes, encoding: str | None) -> tuple[str, str]:
    """Return bytes as text by their mark, the named encoding, as UTF-8 or by a guess, and that
    guess."""
    for mark, marked_encoding in ENCODING_MARKS:
        if data.startswith(mark):
            return data.decode(marked_encoding), ""
    if encoding is not None:
        return data.decode(encoding), ""
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        repaired = data.decode("utf-8", errors="replace")
        # Few broken characters among many good ones: damaged UTF-8.
        foreign = len(re.sub(r"[\x00-\x7f]", "", repaired))
        if repaired.count("\ufffd") <= BROKEN_SHARE * foreign:
            return repaired, f"damaged at byte {error.start}; read as UTF-8"
    guess = guess_encoding(data)
    return data.decode(guess, errors="replace"), f"no UTF-8; read as {guess} by its letters"


def guess_encoding(data: bytes) -> str:
    """Return the encoding that gives most of a language's usual letters, cp1252 where none does."""
    # Lines of ASCII say nothing of the encoding.
    lines = [line for line in data.split(b"\n") if not line.isascii()]
    sample = b"\n".join(lines)
    if len(sample) > GUESS_BYTES:
        sample = sample[:GUESS_BYTES].rpartition(b"\n")[0] or sample[:GUESS_BYTES]
    # Two bytes per character, nearly all of them usual ones.
    east_asian = _best_east_asian(sample)
    if east_asian is not None and _usual_share(east_asian, sample) >= MIN_USUAL_SHARE:
        return east_asian.encoding
    # Another script, where most foreign words hold no letter of ASCII.
    words = len(WORD_WITH_FOREIGN_BYTES.findall(sample))
    if 2 * len(FOREIGN_WORD.findall(sample)) > words:
        reading = _best(OTHER_READINGS, sample)
        if reading is not None and _usual_share(reading, sample) >= MIN_CLEAR_SHARE:
            return reading.encoding
        if east_asian or reading:
            return (east_asian or reading or USUAL_READING).encoding
    return (_best(LATIN_READINGS, sample) or USUAL_READING).encoding


def _best_east_asian(sample: bytes) -> Reading | None:
    """Return the reading whose characters are almost all of the usual part of its set.

    Of several, the one with most usual characters.
    """
    possible = []
    for reading in EAST_ASIAN_READINGS:
        if _first_byte_share(reading, sample) < MIN_FIRST_BYTE_SHARE:
            continue
        if reading.letters is _JAPANESE_KANA and _usual_share(reading, sample) < MIN_KANA_SHARE:
            continue
        possible.append(reading)
    return max(possible, key=lambda reading: _usual_share(reading, sample), default=None)


def _first_byte_share(reading: Reading, sample: bytes) -> float:
    """Return the share of characters beyond ASCII whose first byte is usual.

    It is 0 for bytes that the encoding does not have.
    """
    try:
        text = sample.decode(reading.encoding)
    except UnicodeDecodeError:
        return 0.0
    character_set, first_bytes = USUAL_FIRST_BYTES[reading.encoding]
    foreign = [character for character in text if not character.isascii()]
    usual = 0
    for character in foreign:
        encoded = character.encode(character_set, errors="ignore")
        usual += len(encoded) == 2 and encoded[0] in first_bytes
    return usual / max(1, len(foreign))


def _best(readings: tuple[Reading, ...], sample: bytes) -> Reading | None:
    best = max(readings, key=lambda reading: _usual_share(reading, sample))
    return best if _usual_share(best, sample) > MIN_USUAL_SHARE else None


def _usual_share(reading: Reading, sample: bytes) -> float:
    """Return the share of usual letters among the characters beyond ASCII.

    It is less where signs or capitals are inside words, and -1 for bytes that the encoding does not
    have.
    """
    try:
        text = sample.decode(reading.encoding)
    except UnicodeDecodeError:
        return -1.0
    foreign = faults = 0
    usual = 0.0
    before = "  "
    for character in text:
        if not character.isascii():
            foreign += 1
            if character.lower() in reading.letters:
                is_inner_capital = before[-1].isalpha() and character.isupper()
                usual += INNER_CAPITAL_WEIGHT if is_inner_capital else 1.0
            faults += before[-1].isalpha() and _breaks_word(before, character)
        before = before[-1] + character
    return (usual - faults) / max(1, foreign)


def _breaks_word(before: str, character: str) -> bool:
    """Return whether a character hardly follows these two.

    That is a capital behind a small letter, a small letter behind two capitals, a sign that is not
    a mark of writing.
    """
    if before[-1].islower() and character.isupper():
        return True
    if before.isalpha() and before.isupper() and character.islower():
        return True
    return unicodedata.category(character) in ("So", "Sc", "Sk", "No", "Cc", "Co", "Cn")
