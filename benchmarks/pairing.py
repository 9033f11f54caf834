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
from pathlib import Path

import numpy as np

from stepline.sieve_swap.content_words import generic_words
from stepline.sieve_swap.pairing import PairFinder, WordSets, WordVocabulary
from stepline.sieve_swap.settings import PairingSettings
from stepline.writing.quantities import FUNCTION_WORDS, stem

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "recipes_json" / "recipes.json.gz"
OUT = Path(__file__).resolve().parent / "results" / "pairing.json"
SAMPLED = 1_000_000
SEED = 5


def words_of(text: str) -> list[str]:
    return sorted(
        {
            stem(word)
            for word in re.findall(r"[a-z]{2,}", text.lower())
            if word not in FUNCTION_WORDS
        }
    )


def real_sets(vocabulary: WordVocabulary) -> tuple[list[list[int]], list[list[int]]]:
    with gzip.open(DATA) as file:
        recipes = list(json.load(file).values())
    generic = generic_words()
    titles = [vocabulary.add(set(words_of(recipe["title"])) - generic) for recipe in recipes]
    contents = [vocabulary.add(words_of(" ".join(recipe["steps"]))) for recipe in recipes]
    kept = [
        (title, content)
        for title, content in zip(titles, contents, strict=True)
        if title and content
    ]
    return [title for title, _ in kept], [sorted(set(content)) for _, content in kept]


def inflate(titles, contents, count, chance):
    """Return `count` documents' titles and contents, each mixed from two real ones."""
    out_titles, out_contents = [], []
    for a, b in chance.integers(0, len(titles), (count, 2)):
        out_titles.append([*titles[a], titles[b][(a + b) % len(titles[b])]])
        both = np.array([*{*contents[a], *contents[b]}])
        out_contents.append(both[chance.random(len(both)) < 0.5].tolist())
    return out_titles, out_contents


def videos_of(titles, contents, count, chance):
    """Return `count` videos' titles and words: a document's, of two others, and chatter
    (UNKNOWN)."""
    out_titles, out_contents = [], []
    for a, b, c in chance.integers(0, len(titles), (count, 3)):
        words = [word for word in contents[a] if chance.random() < 0.7]
        words += [word for other in (contents[b], contents[c]) for word in other]
        out_titles.append(titles[a])
        out_contents.append([*set(words), *([-1] * int(chance.integers(20, 120)))])
    return out_titles, out_contents


def pairwise(videos, documents, sample, settings, *, title_first):
    """Return how many of the sampled pairs are kept, by the plain loop."""
    kept = 0
    for video, number in sample:
        title, content, size = videos[video]
        other_title, other = documents[number]
        if title_first and not (title & other_title):
            continue
        shared = len(content & other)
        if (
            shared / (size + len(other) - shared) >= settings.iou
            and shared / len(other) >= settings.recall
        ):
            kept += bool(title & other_title)
    return kept


def cpu(call):
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


def main() -> None:
    options = read_options()
    if options.alone is not None:
        pair_alone(options.alone)
        return
    chance = np.random.default_rng(SEED)
    settings = PairingSettings()
    vocabulary = WordVocabulary()
    real = real_sets(vocabulary)
    documents = inflate(*real, options.documents, chance)
    videos = videos_of(*documents, options.videos, chance)
    document_sets, video_sets = tuple(map(WordSets.of, documents)), tuple(map(WordSets.of, videos))
    python_documents = [
        (set(title), set(content)) for title, content in zip(*documents, strict=True)
    ]
    python_videos = [
        (set(title), {word for word in content if word >= 0}, len(content))
        for title, content in zip(*videos, strict=True)
    ]
    sample = np.stack(
        [
            chance.integers(0, options.videos, SAMPLED),
            chance.integers(0, options.documents, SAMPLED),
        ],
        axis=1,
    ).tolist()
    index_seconds, pairing = cpu(lambda: PairFinder(*document_sets, len(vocabulary)))
    loops, plain, ours = [], [], []
    sampled = (python_videos, python_documents, sample, settings)
    plain.append(cpu(lambda: pairwise(*sampled, title_first=False)))
    loops.append(cpu(lambda: pairwise(*sampled, title_first=True)))
    ours.append(cpu(lambda: list(pairing.all_pairs(*video_sets, settings))))
    loops.append(cpu(lambda: pairwise(*sampled, title_first=True)))
    found = ours[0][1]
    scale = options.videos * options.documents / SAMPLED
    loop_seconds = [seconds * scale for seconds, _ in loops]
    plain_seconds = [seconds * scale for seconds, _ in plain]
    our_seconds = [seconds for seconds, _ in ours]
    check(python_videos, python_documents, settings, found)
    growth = growth_with_documents(document_sets, len(vocabulary), video_sets, settings)
    report = {
        "videos": options.videos,
        "documents": options.documents,
        "words": len(vocabulary),
        "mean words of a document": float(np.mean(document_sets[1].sizes)),
        "mean words of a video": float(np.mean(video_sets[1].sizes)),
        "pairs kept": sum(map(len, found)),
        "pairs expected from the sample": loops[0][1] * scale,
        "index, CPU s": index_seconds,
        "pairing, CPU s": our_seconds[0],
        "pairwise loop, title first, CPU s extrapolated, before and after": loop_seconds,
        "pairwise loop, no title test first, one round": plain_seconds[0],
        "times faster": min(loop_seconds) / min(our_seconds),
        "times faster, the index counted": min(loop_seconds) / (min(our_seconds) + index_seconds),
        "growth": growth,
        "peak MiB of pairing alone": alone(document_sets, video_sets, len(vocabulary)),
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


def alone(document_sets, video_sets, words) -> float:
    """Return the peak memory, MiB, of a process that only loads the sets and pairs the videos."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sets.npz"
        arrays = {}
        for name, sets in zip(("dt", "dc", "vt", "vc"), (*document_sets, *video_sets), strict=True):
            arrays |= {
                f"{name}{part}": getattr(sets, part) for part in ("starts", "words", "unknown")
            }
        np.savez(file, vocabulary=words, **arrays)
        command = [sys.executable, str(Path(__file__)), "--alone", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return float(done.stdout)


def pair_alone(file: Path) -> None:
    arrays = np.load(file)
    titles, contents, video_titles, video_contents = (
        WordSets(*(arrays[f"{name}{part}"] for part in ("starts", "words", "unknown")))
        for name in ("dt", "dc", "vt", "vc")
    )
    pairing = PairFinder(titles, contents, int(arrays["vocabulary"]))
    for _ in pairing.all_pairs(video_titles, video_contents, PairingSettings()):
        pass  # one after another, so that their number changes nothing
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def check(python_videos, python_documents, settings, found) -> None:
    """Raise where a video's pairs are not those of the loop over all documents."""
    for video in range(0, len(python_videos), max(1, len(python_videos) // 3)):
        title, content, size = python_videos[video]
        expected = []
        for number, (other_title, other) in enumerate(python_documents):
            shared = len(content & other)
            if (
                title & other_title
                and shared / (size + len(other) - shared) >= settings.iou
                and shared / len(other) >= settings.recall
            ):
                expected.append(number)
        if expected != found[video].documents.tolist():
            raise SystemExit(
                f"video {video}: {len(expected)} pairs by the loop, {len(found[video])} here"
            )


def growth_with_documents(document_sets, words, video_sets, settings, videos=640):
    """Return CPU seconds of a video against the number of documents, over a quarter, a half, and
    all of them."""
    titles, contents = (WordSets.of(part[k].tolist() for k in range(videos)) for part in video_sets)
    rows = []
    for share in (4, 2, 1):
        count = len(document_sets[0]) // share
        finder = PairFinder(
            *(WordSets.of(part[k] for k in range(count)) for part in document_sets), words
        )
        taken = min(
            cpu(lambda f=finder: list(f.all_pairs(titles, contents, settings)))[0] for _ in range(2)
        )
        rows.append((count, taken / videos))
    documents, seconds = np.array(rows).T
    slope, offset = np.polyfit(documents, seconds, 1)
    return {
        "documents": documents.tolist(),
        "CPU ms a video": (seconds * 1e3).tolist(),
        "ns a video and document": slope * 1e9,
        "us a video": offset * 1e6,
    }


if __name__ == "__main__":
    main()
