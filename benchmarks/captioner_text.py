"""The words of YouCook2: tokens per sentence, unknown ones, and the captioner's perplexity without
any video.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python benchmarks/captioner_text.py [--minutes 3]

The vocabulary and the network learn from the sentences of the training videos. 1 in 12 of these
is held back to choose the epoch. The validation videos are looked at one time. Its query is a
vector of zeros. So this is the text decoder as a language model, next to a unigram and a Kneser-Ney
trigram of the same tokens. A word is what is between blanks. Its perplexity counts the end mark as
a word, and does not depend on how words are split into tokens.
"""

import argparse
import gzip
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch

from stepline.procx.beam_search import generate
from stepline.procx.caption_context import CaptionContext
from stepline.procx.captioner import Captioner
from stepline.procx.losses import caption_loss
from stepline.procx.settings import CaptionerSettings, SearchSettings, VocabularySettings
from stepline.procx.vocabulary import (
    BEGIN_TOKEN,
    END_TOKEN,
    PAD_TOKEN,
    CaptionTokens,
    Vocabulary,
    normalise,
    tokenize,
    train_vocabulary,
)

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / ".." / "shared" / "data" / "youcook2"
OUT = ROOT / "benchmarks" / "results" / "captioner_text.json"
BATCH = 64
DISCOUNT = 0.75  # of the trigram; Kneser and Ney
RATE = 3e-3  # of learning, at the start; falls to 0 over the given time
NETWORK = CaptionerSettings(
    width=128, heads=4, text_layers=1, joint_layers=1, feed_forward=512, dropout=0.2
)


def sentences(part: str) -> list[list[str]]:
    """Return the sentences of each video."""
    videos = json.loads(gzip.decompress((DATA / f"{part}.json.gz").read_bytes()))
    return [videos[name]["sentences"] for name in sorted(videos)]


def counts(vocabulary: Vocabulary, texts: Sequence[str]) -> dict[str, float]:
    encoded = [vocabulary.encode(text) for text in texts]
    pairs = zip(encoded, texts, strict=True)
    back = sum(vocabulary.decode(row) == normalise(text, vocabulary.lower) for row, text in pairs)
    return {
        "sentences": len(texts),
        "tokens_a_sentence": sum(map(len, encoded)) / len(texts),
        "words_a_sentence": sum(len(text.split()) for text in texts) / len(texts),
        "longest": max(map(len, encoded)),
        "unknown_tokens": sum(row.count(PAD_TOKEN) for row in encoded),
        "come_back_as_they_were": back,
    }


def surprise(network: Captioner, data: CaptionTokens) -> float:
    """Return the sum of -log P over all tokens, end marks included."""
    total = 0.0
    with torch.no_grad():
        for rows in torch.arange(len(data)).split(256):
            part = data.take(rows)
            told = network(
                part.tokens, part.token_pad, CaptionContext(torch.zeros(len(part), NETWORK.width))
            )
            total += caption_loss(told.logits, part.targets, part.token_pad, 0.0).total.item()
    return total


def shortened(data: CaptionTokens) -> CaptionTokens:
    """Return the captions without columns that are padding alone."""
    width = int((~data.token_pad).sum(1).max())
    return CaptionTokens(data.tokens[:, :width], data.targets[:, :width], data.token_pad[:, :width])


def train(
    network: Captioner, data: CaptionTokens, held: CaptionTokens, minutes: float
) -> dict[str, float]:
    """Train until time is up or the held-out part gets worse twice. The network is left as it was
    at its best."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    began, best, kept, epoch, worse = time.process_time(), math.inf, {}, 0, 0
    while time.process_time() - began < 60 * minutes and worse < 2:
        network.train()
        for rows in torch.randperm(len(data)).split(BATCH):
            part = shortened(data.take(rows))
            told = network(
                part.tokens, part.token_pad, CaptionContext(torch.zeros(len(part), NETWORK.width))
            )
            loss = caption_loss(told.logits, part.targets, part.token_pad, 0.0).mean
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            left = 1 - (time.process_time() - began) / (60 * minutes)
            if left <= 0:
                break
            optimizer.param_groups[0]["lr"] = RATE * left
        network.eval()
        score = surprise(network, held) / int((~held.token_pad).sum())
        epoch += 1
        used = time.process_time() - began
        print(
            f"epoch {epoch}: held out {math.exp(score):.1f} a token, {used:.0f} CPU s", flush=True
        )
        worse = 0 if score < best else worse + 1
        if score < best:
            best, kept = (
                score,
                {name: value.clone() for name, value in network.state_dict().items()},
            )
    network.load_state_dict(kept)
    return {"epochs": epoch, "cpu_s": time.process_time() - began, "held_out": math.exp(best)}


class Trigram:
    """Interpolated Kneser-Ney of order 3 over tokens, at its end uniform."""

    def __init__(self, rows: Sequence[Sequence[int]], size: int) -> None:
        self.size = size
        self.seen: list[dict[tuple[int, ...], Counter[int]]] = [
            defaultdict(Counter) for _ in range(3)
        ]
        for row in rows:
            path = [BEGIN_TOKEN, BEGIN_TOKEN, *row]
            for place in range(2, len(path)):
                self.seen[2][tuple(path[place - 2 : place])][path[place]] += 1
        for order in (1, 0):  # how many contexts a token follows
            for context, after in self.seen[order + 1].items():
                for token in after:
                    self.seen[order][context[1:]][token] += 1

    def probability(self, context: tuple[int, ...], token: int) -> float:
        """Return P(token) after at most two tokens."""
        after = self.seen[len(context)].get(context)
        lower = self.probability(context[1:], token) if context else 1 / self.size
        if not after:
            return lower
        total = sum(after.values())
        return max(after[token] - DISCOUNT, 0) / total + DISCOUNT * len(after) / total * lower

    def surprise(self, rows: Sequence[Sequence[int]]) -> float:
        """Return the sum of -log P over all tokens of the rows."""
        total = 0.0
        for row in rows:
            path = [BEGIN_TOKEN, BEGIN_TOKEN, *row]
            total -= sum(
                math.log(self.probability(tuple(path[p - 2 : p]), path[p]))
                for p in range(2, len(path))
            )
        return total


def unigram(rows: Sequence[Sequence[int]], test: Sequence[Sequence[int]], size: int) -> float:
    """Return the surprise of the test by how often each token comes, one added to each."""
    seen = Counter(token for row in rows for token in row)
    total = sum(seen.values()) + size
    return -sum(math.log((seen[token] + 1) / total) for row in test for token in row)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="CPU minutes of training at most"
    )
    parser.add_argument("--size", type=int, default=10_000, help="most tokens of the vocabulary")
    options = parser.parse_args()
    torch.manual_seed(0)
    videos = sentences("train")
    held = [text for place, video in enumerate(videos) if place % 12 == 0 for text in video]
    learnt = [text for place, video in enumerate(videos) if place % 12 for text in video]
    test = [text for video in sentences("val") for text in video]
    vocabulary = train_vocabulary(learnt, VocabularySettings(size=options.size))
    network = Captioner(NETWORK, len(vocabulary))
    data, held_data, test_data = (
        tokenize(texts, vocabulary, NETWORK.longest) for texts in (learnt, held, test)
    )
    run = train(network, data, held_data, options.minutes)
    rows, test_rows = (
        [[*vocabulary.encode(t), END_TOKEN] for t in texts] for texts in (learnt, test)
    )
    surprises = {
        "unigram": unigram(rows, test_rows, len(vocabulary)),
        "trigram": Trigram(rows, len(vocabulary)).surprise(test_rows),
        "captioner": surprise(network, test_data),
    }
    tokens, words = sum(map(len, test_rows)), sum(len(text.split()) + 1 for text in test)
    result = {
        "vocabulary": {"size": len(vocabulary), "sha256": vocabulary.sha256},
        "train": counts(vocabulary, learnt),
        "val": counts(vocabulary, test) | {"cut": test_data.truncated},
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "run": run,
        "perplexity": {
            name: {"token": math.exp(value / tokens), "word": math.exp(value / words)}
            for name, value in surprises.items()
        },
        "says": vocabulary.decode(
            generate(
                network, CaptionContext(torch.zeros(1, NETWORK.width)), SearchSettings(beam=4)
            )[0].tokens
        ),
    }
    OUT.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(result, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
