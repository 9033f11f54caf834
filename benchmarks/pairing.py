"""Measures pairing against the pairwise loop: speed, growth with the number of documents, peak
memory.

    python benchmarks/pairing.py [--videos 10000] [--documents 200000]

Word sets come from the 18,000 real recipes of ../shared/data/recipes_json, inflated by a seeded
script. They are stems of all but function words: what the tagger would leave out changes no cost
here. A document takes two real recipes' words, each kept with probability 1/2. So sizes and word
frequencies stay those of real recipes. It also takes one of their titles with a word of the other.
A video takes a document's title and most of its words, and the words of two others (people talk of
more than the one dish). It also takes words of speech that no recipe has. Both sides get the same
ready sets. The pairwise loop, Python sets with the title test first, runs on a random sample of
10^6 pairs and is extrapolated. A second one without the title test is shown next to it. CPU
seconds, one thread. The loop runs before and after ours.
"""

import argparse
import gzip
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepline.sieve_swap.content_words import generic_words
from stepline.sieve_swap.pairing import PairFinder, WordSets, WordVocabulary
from stepline.sieve_swap.settings import PairingSettings
from stepline.writing.quantities import FUNCTION_WORDS, stem

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
RECIPES_PATH = PROJECT_FOLDER.parent / "shared" / "data" / "recipes_json" / "recipes.json.gz"
RESULT_PATH = PROJECT_FOLDER / "benchmarks" / "results" / "pairing.json"
SAMPLE_PAIRS = 1_000_000
RANDOM_SEED = 5
UNKNOWN_WORD = -1
WORD_PATTERN = re.compile(r"[a-z]{2,}")
# As a file of arrays names them: titles and contents of documents, then of videos.
SET_NAMES = ("dt", "dc", "vt", "vc")
SET_PARTS = ("starts", "words", "unknown")
WordLists = list[list[int]]
Sets = Sequence[WordSets]  # of titles, of contents
PythonDocument = tuple[set[int], set[int]]  # title, content
PythonVideo = tuple[set[int], set[int], int]  # title, known words, number of all words


def words_of(text: str) -> list[str]:
    words = WORD_PATTERN.findall(text.lower())
    stems = {stem(word) for word in words if word not in FUNCTION_WORDS}
    return sorted(stems)


def real_sets(vocabulary: WordVocabulary) -> tuple[WordLists, WordLists]:
    with gzip.open(RECIPES_PATH) as file:
        recipes = list(json.load(file).values())
    generic = generic_words()
    titles = [vocabulary.add(set(words_of(recipe["title"])) - generic) for recipe in recipes]
    contents = [vocabulary.add(words_of(" ".join(recipe["steps"]))) for recipe in recipes]
    full_titles = []
    full_contents = []
    for title, content in zip(titles, contents, strict=True):
        if title and content:
            full_titles.append(title)
            full_contents.append(sorted(set(content)))
    return full_titles, full_contents


def inflate(
    titles: WordLists, contents: WordLists, count: int, rng: np.random.Generator
) -> tuple[WordLists, WordLists]:
    """Return `count` documents' titles and contents, each mixed from two real ones."""
    mixed_titles = []
    mixed_contents = []
    for first, second in rng.integers(0, len(titles), (count, 2)):
        other_title = titles[second]
        word = other_title[(first + second) % len(other_title)]
        mixed_titles.append([*titles[first], word])
        both = np.array([*{*contents[first], *contents[second]}])
        is_used = rng.random(len(both)) < 0.5
        mixed_contents.append(both[is_used].tolist())
    return mixed_titles, mixed_contents


def videos_of(
    titles: WordLists, contents: WordLists, count: int, rng: np.random.Generator
) -> tuple[WordLists, WordLists]:
    """Return `count` videos' titles and words: a document's, of two others, and chatter (unknown
    words)."""
    video_titles = []
    video_contents = []
    for own, second, third in rng.integers(0, len(titles), (count, 3)):
        words = [word for word in contents[own] if rng.random() < 0.7]
        words += contents[second]
        words += contents[third]
        chatter = [UNKNOWN_WORD] * int(rng.integers(20, 120))
        video_titles.append(titles[own])
        video_contents.append([*set(words), *chatter])
    return video_titles, video_contents


def is_like(video: PythonVideo, document: PythonDocument, settings: PairingSettings) -> bool:
    """Say whether the words of a document are among a video's, as the settings ask."""
    _, content, size = video
    _, other = document
    shared = len(content & other)
    union = size + len(other) - shared
    return shared / union >= settings.iou and shared / len(other) >= settings.recall


def pairwise(
    videos: Sequence[PythonVideo],
    documents: Sequence[PythonDocument],
    sample: Sequence[Sequence[int]],
    settings: PairingSettings,
    *,
    title_first: bool,
) -> int:
    """Return how many of the sampled pairs are kept, by the plain loop."""
    count = 0
    for video, number in sample:
        title, content, size = videos[video]
        other_title, other = documents[number]
        if title_first and not (title & other_title):
            continue
        # `is_like`, without the cost of a call
        shared = len(content & other)
        union = size + len(other) - shared
        if shared / union >= settings.iou and shared / len(other) >= settings.recall:
            count += bool(title & other_title)
    return count


def cpu(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, and its result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def read_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--videos", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def python_sets(
    documents: tuple[WordLists, WordLists], videos: tuple[WordLists, WordLists]
) -> tuple[list[PythonVideo], list[PythonDocument]]:
    """Return videos and documents as the sets of the plain loop."""
    python_documents = []
    for title, content in zip(*documents, strict=True):
        python_documents.append((set(title), set(content)))
    python_videos = []
    for title, content in zip(*videos, strict=True):
        known_words = {word for word in content if word != UNKNOWN_WORD}
        python_videos.append((set(title), known_words, len(content)))
    return python_videos, python_documents


def main() -> None:
    options = read_options()
    if options.alone is not None:
        pair_alone(options.alone)
        return
    # the data
    rng = np.random.default_rng(RANDOM_SEED)
    settings = PairingSettings()
    vocabulary = WordVocabulary()
    real = real_sets(vocabulary)
    documents = inflate(*real, options.documents, rng)
    videos = videos_of(*documents, options.videos, rng)
    document_sets = tuple(map(WordSets.of, documents))
    video_sets = tuple(map(WordSets.of, videos))
    python_videos, python_documents = python_sets(documents, videos)
    sample_videos = rng.integers(0, options.videos, SAMPLE_PAIRS)
    sample_documents = rng.integers(0, options.documents, SAMPLE_PAIRS)
    sample = np.stack([sample_videos, sample_documents], axis=1).tolist()

    # the plain loop before and after ours
    index_seconds, finder = cpu(lambda: PairFinder(*document_sets, len(vocabulary)))
    loop_inputs = (python_videos, python_documents, sample, settings)
    plain_seconds, _ = cpu(lambda: pairwise(*loop_inputs, title_first=False))
    seconds_before, sample_count = cpu(lambda: pairwise(*loop_inputs, title_first=True))
    our_seconds, pairs = cpu(lambda: list(finder.all_pairs(*video_sets, settings)))
    seconds_after, _ = cpu(lambda: pairwise(*loop_inputs, title_first=True))

    scale = options.videos * options.documents / SAMPLE_PAIRS
    loop_seconds = [seconds_before * scale, seconds_after * scale]
    check(python_videos, python_documents, settings, pairs)
    growth = growth_with_documents(document_sets, len(vocabulary), video_sets, settings)
    report = {
        "videos": options.videos,
        "documents": options.documents,
        "words": len(vocabulary),
        "mean words of a document": float(np.mean(document_sets[1].sizes)),
        "mean words of a video": float(np.mean(video_sets[1].sizes)),
        "pairs kept": sum(map(len, pairs)),
        "pairs expected from the sample": sample_count * scale,
        "index, CPU s": index_seconds,
        "pairing, CPU s": our_seconds,
        "pairwise loop, title first, CPU s extrapolated, before and after": loop_seconds,
        "pairwise loop, no title test first, one round": plain_seconds * scale,
        "times faster": min(loop_seconds) / our_seconds,
        "times faster, the index counted": min(loop_seconds) / (our_seconds + index_seconds),
        "growth": growth,
        "peak MiB of pairing alone": alone(document_sets, video_sets, len(vocabulary)),
    }
    text = json.dumps(report, indent=2)
    RESULT_PATH.parent.mkdir(exist_ok=True)
    RESULT_PATH.write_text(f"{text}\n")
    print(text)


def alone(document_sets: Sets, video_sets: Sets, words: int) -> float:
    """Return the peak memory, MiB, of a process that only loads the sets and pairs the videos."""
    arrays = {}
    for name, sets in zip(SET_NAMES, (*document_sets, *video_sets), strict=True):
        for part in SET_PARTS:
            arrays[f"{name}{part}"] = getattr(sets, part)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sets.npz"
        np.savez(file, vocabulary=words, **arrays)
        command = [sys.executable, str(Path(__file__)), "--alone", str(file)]
        process = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ
        )
    return float(process.stdout)


def pair_alone(file: Path) -> None:
    arrays = np.load(file)
    all_sets = []
    for name in SET_NAMES:
        parts = [arrays[f"{name}{part}"] for part in SET_PARTS]
        all_sets.append(WordSets(*parts))
    titles, contents, video_titles, video_contents = all_sets
    finder = PairFinder(titles, contents, int(arrays["vocabulary"]))
    for _ in finder.all_pairs(video_titles, video_contents, PairingSettings()):
        pass  # one after another, so that their number changes nothing
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def check(
    python_videos: Sequence[PythonVideo],
    python_documents: Sequence[PythonDocument],
    settings: PairingSettings,
    pairs: Sequence[Any],
) -> None:
    """Raise where a video's pairs are not those of the loop over all documents."""
    stride = max(1, len(python_videos) // 3)
    for number in range(0, len(python_videos), stride):
        video = python_videos[number]
        expected = []
        for row, document in enumerate(python_documents):
            has_title = bool(video[0] & document[0])
            if has_title and is_like(video, document, settings):
                expected.append(row)
        actual = pairs[number].documents.tolist()
        if expected != actual:
            raise SystemExit(
                f"video {number}: {len(expected)} pairs by the loop, {len(pairs[number])} here"
            )


def first_sets(sets: WordSets, count: int) -> WordSets:
    """Return the first of some sets."""
    return WordSets.of(sets[number].tolist() for number in range(count))


def growth_with_documents(
    document_sets: Sets, words: int, video_sets: Sets, settings: PairingSettings, videos: int = 640
) -> dict[str, Any]:
    """Return CPU seconds of a video against the number of documents, over a quarter, a half, and
    all of them."""
    titles = first_sets(video_sets[0], videos)
    contents = first_sets(video_sets[1], videos)
    counts = []
    seconds_per_video = []
    for share in (4, 2, 1):
        count = len(document_sets[0]) // share
        parts = [first_sets(sets, count) for sets in document_sets]
        finder = PairFinder(*parts, words)
        rounds = []
        for _ in range(2):
            seconds, _pairs = cpu(lambda f=finder: list(f.all_pairs(titles, contents, settings)))
            rounds.append(seconds)
        counts.append(count)
        seconds_per_video.append(min(rounds) / videos)
    documents = np.array(counts, dtype=float)
    seconds = np.array(seconds_per_video)
    slope, offset = np.polyfit(documents, seconds, 1)
    return {
        "documents": documents.tolist(),
        "CPU ms a video": (seconds * 1e3).tolist(),
        "ns a video and document": slope * 1e9,
        "us a video": offset * 1e6,
    }


if __name__ == "__main__":
    main()
