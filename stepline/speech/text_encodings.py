"""Detects the encoding of a text: byte order mark, UTF-8, or a guess by letter frequencies.

The guess expects natural language. In a Latin script few letters of a word are beyond ASCII, in
other scripts all are. The encoding with the largest share of a language's usual letters wins.
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


class CandidateEncoding(NamedTuple):
    """An encoding, with the letters by which it is recognised.

    Attributes:
        encoding: name of the Python codec.
        letters: frequent letters of a language, in Latin scripts only those beyond ASCII.
    """

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

# Among equally good ones, the first wins.
LATIN_ENCODINGS = (
    CandidateEncoding("cp1252", "éèêëàâçîïôùûœ«»"),
    CandidateEncoding("cp1252", "äöüß"),
    CandidateEncoding("cp1252", "áéíóúñü¿¡"),
    CandidateEncoding("cp1252", "ãõáàâçéêíóôú"),
    CandidateEncoding("cp1252", "àèéìòù"),
    CandidateEncoding("cp1252", "æøåé"),
    CandidateEncoding("cp1252", "åäöé"),
    CandidateEncoding("cp1250", "ąćęłńóśźż"),
    CandidateEncoding("cp1250", "áčďéěíňóřšťúůýžľĺŕôä"),
    CandidateEncoding("cp1250", "áéíóöőúüű"),
    CandidateEncoding("cp1250", "ăâîşţ"),
    CandidateEncoding("cp1250", "čćđšž"),
    CandidateEncoding("cp1254", "çğıöşüâ"),
    CandidateEncoding("cp1252", "ðþáéíóúýæö"),
)
OTHER_ENCODINGS = (
    CandidateEncoding("cp1251", _RUSSIAN_LETTERS),
    CandidateEncoding("koi8_r", _RUSSIAN_LETTERS),
    CandidateEncoding("cp866", _RUSSIAN_LETTERS),
    CandidateEncoding("iso8859_5", _RUSSIAN_LETTERS),
    CandidateEncoding("cp1253", _GREEK_LETTERS),
    CandidateEncoding("cp1255", "יוהלאתרמבשנםחדכע"),
    CandidateEncoding("cp1256", "اليمنوتربةعدسفهكق"),
    CandidateEncoding("cp874", "านรอกเงทยลวมสตหแไดค่้ี"),
)
# Two bytes per character. The first byte tells the part of the character set, of which modern texts
# use one: the character set with this part.
EAST_ASIAN_ENCODINGS = (
    CandidateEncoding("gb18030", _CHINESE_CHARACTERS),
    CandidateEncoding("big5", _TRADITIONAL_CHARACTERS),
    CandidateEncoding("cp949", _KOREAN_SYLLABLES),
    CandidateEncoding("cp932", _JAPANESE_KANA),
    CandidateEncoding("euc_jp", _JAPANESE_KANA),
)
FREQUENT_FIRST_BYTES = {
    "gb18030": ("gb2312", range(0xA1, 0xD8)),
    "big5": ("big5", range(0xA1, 0xC7)),
    "cp949": ("euc_kr", range(0xA1, 0xC9)),
    "cp932": ("cp932", range(0x81, 0x98)),
    "euc_jp": ("euc_jp", range(0xA1, 0xD0)),
}
MIN_FIRST_BYTE_SHARE = 0.9
# of Japanese kana. Other texts have the bytes of some kana by chance, as in "It’s"
MIN_KANA_SHARE = 0.3
# share of frequent characters from which one byte per character is more likely than East Asian text
# without frequent characters
MIN_FREQUENT_SHARE_ONE_BYTE = 0.6
DEFAULT_ENCODING = LATIN_ENCODINGS[0]
MAX_SAMPLE_BYTES = 65_536  # of the lines beyond ASCII by which an encoding is guessed
MIN_FREQUENT_SHARE = 0.15  # of the letters, from which an encoding is believed
# a word in another script than Latin: at least two bytes beyond ASCII, next to no ASCII letter
NON_ASCII_WORD = re.compile(rb"(?<![A-Za-z\x80-\xff])[\x80-\xff]{2,}(?![A-Za-z\x80-\xff])")
WORD_WITH_NON_ASCII_BYTES = re.compile(rb"[A-Za-z]*[\x80-\xff][A-Za-z\x80-\xff]*")
INNER_CAPITAL_WEIGHT = 0.9  # a text in capitals is rare
# around right-to-left captions. No word needs them, and a terminal is not given them
DIRECTION_MARKS = re.compile("[\u202a-\u202e\u2066-\u2069]")
MAX_INVALID_SHARE = 0.1  # of the characters beyond ASCII in UTF-8 that counts as damaged


def read_caption_text(path: Path, encoding: str | None = None) -> tuple[str, str]:
    """Return the text of a caption file with "\\n" line ends and without marks of the writing
    direction, and a note on its guessed encoding.

    The note is "" if the encoding was not guessed.

    Args:
        path: path of the file.
        encoding: name of a Python codec given by the user. None to detect it.

    Raises CaptionError if the file cannot be read, is too large or is not a text.
    """
    try:
        text, guess = _decode_text(read_limited(path, MAX_CAPTIONS_BYTES), encoding)
    except LimitError as error:
        raise CaptionError(f"{path}: {error}; cut this video's part out of it") from error
    except OSError as error:
        raise CaptionError(
            f"{path}: cannot be read ({error.strerror}); give a caption file"
        ) from error
    except UnicodeDecodeError as error:
        raise CaptionError(
            f"{path}: damaged at byte {error.start}, not {error.encoding}; save it as UTF-8"
        ) from error
    except LookupError as error:
        raise CaptionError(
            f"{path}: encoding {encoding!r} is not known; name one such as cp1251, koi8_r, "
            "gb18030, shift_jis"
        ) from error
    # Binary data, or two bytes per letter without a mark.
    if "\0" in text:
        raise CaptionError(
            f"{path}: holds zero bytes, so it is not caption text; give srt, vtt, csv or json"
        )
    return re.sub("\r\n?", "\n", DIRECTION_MARKS.sub("", text)), guess


def _decode_text(data: bytes, encoding: str | None) -> tuple[str, str]:
    """Return the decoded text, and the name of the encoding if it was guessed.

    encoding: name of a Python codec. None to detect it.
    """
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
        non_ascii_count = len(re.sub(r"[\x00-\x7f]", "", repaired))
        if repaired.count("\ufffd") <= MAX_INVALID_SHARE * non_ascii_count:
            return repaired, f"damaged at byte {error.start}; read as UTF-8"
    guess = guess_encoding(data)
    return data.decode(guess, errors="replace"), f"no UTF-8; read as {guess} by its letters"


def guess_encoding(data: bytes) -> str:
    """Return the encoding in which most letters are frequent letters of a language.

    It is cp1252 if no encoding gives such letters.

    data: text in an unknown encoding.
    """
    # Lines of ASCII do not depend on the encoding.
    sample = b"\n".join(line for line in data.split(b"\n") if not line.isascii())
    if len(sample) > MAX_SAMPLE_BYTES:
        sample = sample[:MAX_SAMPLE_BYTES].rpartition(b"\n")[0] or sample[:MAX_SAMPLE_BYTES]
    # Two bytes per character, nearly all of them frequent ones.
    east_asian = _best_east_asian(sample)
    if east_asian is not None and _frequent_share(east_asian, sample) >= MIN_FREQUENT_SHARE:
        return east_asian.encoding
    # Another script, where most foreign words hold no letter of ASCII.
    if 2 * len(NON_ASCII_WORD.findall(sample)) > len(WORD_WITH_NON_ASCII_BYTES.findall(sample)):
        other = _best_encoding(OTHER_ENCODINGS, sample)
        if other is not None and _frequent_share(other, sample) >= MIN_FREQUENT_SHARE_ONE_BYTE:
            return other.encoding
        if east_asian or other:
            return (east_asian or other or DEFAULT_ENCODING).encoding
    return (_best_encoding(LATIN_ENCODINGS, sample) or DEFAULT_ENCODING).encoding


def _best_east_asian(sample: bytes) -> CandidateEncoding | None:
    """Return the East Asian encoding in which the most characters are frequent.

    Only encodings in which most characters have a frequent first byte count. None if there are
    none.

    sample: the lines of the text that are not ASCII.
    """
    candidates = []
    for candidate in EAST_ASIAN_ENCODINGS:
        is_japanese = candidate.letters is _JAPANESE_KANA
        if _frequent_byte_share(candidate, sample) >= MIN_FIRST_BYTE_SHARE and not (
            is_japanese and _frequent_share(candidate, sample) < MIN_KANA_SHARE
        ):
            candidates.append(candidate)
    return max(candidates, key=lambda item: _frequent_share(item, sample), default=None)


def _frequent_byte_share(candidate: CandidateEncoding, sample: bytes) -> float:
    """Return the share of characters beyond ASCII whose first byte is frequent.

    0 if the bytes are invalid in the encoding.

    Args:
        candidate: the encoding.
        sample: text in an unknown encoding.
    """
    try:
        text = sample.decode(candidate.encoding)
    except UnicodeDecodeError:
        return 0.0
    character_set, first_bytes = FREQUENT_FIRST_BYTES[candidate.encoding]
    non_ascii = [character for character in text if not character.isascii()]
    encoded = [character.encode(character_set, errors="ignore") for character in non_ascii]
    frequent = [pair for pair in encoded if len(pair) == 2 and pair[0] in first_bytes]
    return len(frequent) / max(1, len(non_ascii))


def _best_encoding(
    candidates: tuple[CandidateEncoding, ...], sample: bytes
) -> CandidateEncoding | None:
    best = max(candidates, key=lambda candidate: _frequent_share(candidate, sample))
    return best if _frequent_share(best, sample) > MIN_FREQUENT_SHARE else None


def _frequent_share(candidate: CandidateEncoding, sample: bytes) -> float:
    """Return the share of frequent letters among the characters beyond ASCII.

    Symbols or capitals inside words lower it. It is -1 if the bytes are invalid in the encoding.

    Args:
        candidate: the encoding, with its frequent letters.
        sample: text in an unknown encoding.
    """
    try:
        text = sample.decode(candidate.encoding)
    except UnicodeDecodeError:
        return -1.0
    non_ascii = word_breaks = 0
    frequent = 0.0
    previous = "  "
    for character in text:
        if not character.isascii():
            non_ascii += 1
            if character.lower() in candidate.letters:
                is_inner_capital = previous[-1].isalpha() and character.isupper()
                frequent += INNER_CAPITAL_WEIGHT if is_inner_capital else 1.0
            word_breaks += previous[-1].isalpha() and _breaks_word(previous, character)
        previous = previous[-1] + character
    return (frequent - word_breaks) / max(1, non_ascii)


def _breaks_word(previous_characters: str, character: str) -> bool:
    """Return whether a character is unlikely after the two characters before it.

    Unlikely are a capital after a small letter, a small letter after two capitals, and a symbol
    that is not punctuation.

    Args:
        previous_characters: the two characters before it.
        character: the character.
    """
    if previous_characters[-1].islower() and character.isupper():
        return True
    if previous_characters.isalpha() and previous_characters.isupper() and character.islower():
        return True
    return unicodedata.category(character) in ("So", "Sc", "Sk", "No", "Cc", "Co", "Cn")
