"""Language tags in file names, such as talk.en.vtt, talk.zh-Hant.srt and talk.deu.forced.srt."""

from typing import Annotated

from pydantic import AfterValidator

# ISO 639-1: all codes of two letters.
_TWO_LETTER_TEXT = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy
da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu
hy hz ia id ie ig ii ik io is it iu iw ja ji jv jw ka kg ki kj kk kl km kn ko kr ks ku kv kw
ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mo mr ms mt my na nb nd ne ng nl nn no nr nv
ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr
ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo
za zh zu
"""
TWO_LETTER_CODES = frozenset(_TWO_LETTER_TEXT.split())
# ISO 639-2 and 639-3: codes of three letters, of languages with subtitles.
_THREE_LETTER_TEXT = """
afr alb amh ara arm asm ast aze bak baq bel ben ber bos bre bul bur cat ceb ces chi cmn cos
cym cze dan deu div dut ell eng epo est eus fao fas fil fin fra fre fry ful gla gle glg ger
geo gre gsw guj hak hat hau haw heb hin hmn hrv hsb hun hye ibo ice ind isl ita jav jpn kal
kan kat kaz khm kin kir kor kur lao lat lav lin lit ltz mac mal mao mar may mkd mlg mlt mon
mri msa mya nan nds nep nld nno nob nor oci ori orm pan per pol por pus que roh ron rum run
rus san scc scn scr sin slk slo slv smo sna snd som sot spa sqi srp sun swa swe tam tat tel
tgk tgl tha tib tir ton tuk tur twi uig ukr und urd uzb vie wel wol wuu xho yid yor yue zho zul
"""
THREE_LETTER_CODES = frozenset(_THREE_LETTER_TEXT.split())
# words that follow a language where captions are of a special kind
KIND_WORDS = frozenset(("forced", "sdh", "cc", "hi", "default", "auto", "orig"))
MAX_SUBTAG_CHARS = 16  # of a variant; yt-dlp adds names of tracks of 11


def language_of_tag(tag: str) -> str | None:
    """Return the language code of a tag, in small letters. None for a text that is not a tag.

    "en", "zh-Hant", "pt_BR" and "eng" are tags. "eggs" is not.
    """
    subtags = tag.replace("_", "-").split("-")
    code = subtags[0].lower()
    if code not in TWO_LETTER_CODES and code not in THREE_LETTER_CODES:
        return None
    is_tag = all(subtag.isalnum() and len(subtag) <= MAX_SUBTAG_CHARS for subtag in subtags)
    return code if is_tag else None


def check_language(tag: str) -> str:
    """Return a language tag. Raises ValueError for a text that is not one."""
    if language_of_tag(tag) is None:
        raise ValueError("no language has this code; give one of ISO 639, such as en, es or zh")
    return tag


Language = Annotated[str, AfterValidator(check_language)]


def split_language(stem: str) -> tuple[str, str]:
    """Return (stem without language tag, language tag) of a file's stem.

    The tag is "" if there is none. talk.en -> (talk, en). A caption kind such as "forced" belongs
    to the tag: talk.en.forced -> (talk, en.forced).
    """
    base, _, last = stem.rpartition(".")
    if not base:
        return stem, ""
    if last.lower() in KIND_WORDS:
        name, _, tag = base.rpartition(".")
        if name and language_of_tag(tag) is not None:
            return name, f"{tag}.{last}"
    if language_of_tag(last) is not None:
        return base, last
    return stem, ""
