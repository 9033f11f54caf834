"""Which id a file's name gives, and what kind of file it is."""

from stepline.features.sources import item_id
from stepline.jobs import SUFFIXES

CAPTIONS = (".vtt", ".srt", ".json3", ".json", ".csv")  # the first that is there is taken
LISTS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
ABOUT = ".info.json"  # what downloaders note of a video; no captions
LONGEST_LANGUAGE = 8  # letters, as of zh-Hant


def video_id(name: str) -> tuple[str, int] | None:
    """Return the stem of a video's file name; None for any other file."""
    stem, ending = _split(name)
    return (stem, 0) if stem and ending in SUFFIXES else None


def captions_id(name: str) -> tuple[str, int] | None:
    """Return the id that a captions file is named after, with or without a language: ID.vtt, ID.en.vtt.

    The rank puts .vtt before .srt before .json before .csv, and a file without a language before those with one.
    """
    stem, ending = _split(name)
    if not stem or ending not in CAPTIONS or name.lower().endswith(ABOUT):
        return None
    rank = CAPTIONS.index(ending)
    base, dot, language = stem.rpartition(".")
    if dot and base and len(language) <= LONGEST_LANGUAGE and language.replace("-", "").isalpha():
        return base, rank + len(CAPTIONS)
    return stem, rank


def features_id(name: str) -> tuple[str, int] | None:
    """Return the id that a file of features is named after: ID.npy, ID.mp4.npy, ID.pth.tar, ID.safetensors."""
    id = item_id(name.rpartition("/")[2])
    return None if id is None else (id, 0)


def is_list(name: str) -> bool:
    """Return whether a file's name says that it is a list of videos."""
    return name.lower().removesuffix(".gz").endswith(LISTS)


def _split(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition("/")[2].rpartition(".")
    return stem, f"{dot}{ending.lower()}"
