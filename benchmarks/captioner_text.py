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
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from stepline.models.procx.beam_search import generate
from stepline.models.procx.caption_context import CaptionContext
from stepline.models.procx.captioner import Captioner
from stepline.models.procx.losses import caption_loss
from stepline.models.procx.settings import CaptionerSettings, SearchSettings, VocabularySettings
from stepline.models.procx.vocabulary import (
    BEGIN_TOKEN,
    END_TOKEN,
    PAD_TOKEN,
    CaptionTokens,
    Vocabulary,
    normalise,
    tokenize,
    train_vocabulary,
)
from stepline.models.training.loop import Loss

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
DATA_FOLDER = PROJECT_FOLDER / ".." / "shared" / "data" / "youcook2"
RESULT_PATH = PROJECT_FOLDER / "benchmarks" / "results" / "captioner_text.json"
BATCH_SIZE = 64
TRIGRAM_DISCOUNT = 0.75  # Kneser and Ney
LEARNING_RATE = 3e-3  # at the start; falls to 0 over the given time
MAX_WORSE_EPOCHS = 2
NETWORK_SETTINGS = CaptionerSettings(
    width=128, heads=4, text_layers=1, joint_layers=1, feed_forward=512, dropout=0.2
)


def sentences(part: str) -> list[list[str]]:
    """Return the sentences of each video."""
    videos = json.loads(gzip.decompress((DATA_FOLDER / f"{part}.json.gz").read_bytes()))
    return [videos[name]["sentences"] for name in sorted(videos)]


def counts(vocabulary: Vocabulary, texts: Sequence[str]) -> dict[str, float]:
    """Return sizes of sentences, in words and tokens."""
    encoded = [vocabulary.encode(text) for text in texts]
    unchanged = 0
    for tokens, text in zip(encoded, texts, strict=True):
        unchanged += vocabulary.decode(tokens) == normalise(text, vocabulary.lower)
    return {
        "sentences": len(texts),
        "tokens_a_sentence": sum(map(len, encoded)) / len(texts),
        "words_a_sentence": sum(len(text.split()) for text in texts) / len(texts),
        "longest": max(map(len, encoded)),
        "unknown_tokens": sum(row.count(PAD_TOKEN) for row in encoded),
        "come_back_as_they_were": unchanged,
    }


def surprise(network: Captioner, data: CaptionTokens) -> float:
    """Return the sum of -log P over all tokens, end marks included."""
    total = 0.0
    with torch.no_grad():
        for rows in torch.arange(len(data)).split(256):
            total += token_loss(network, data.take(rows)).total.item()
    return total


def token_loss(network: Captioner, captions: CaptionTokens) -> Loss:
    """Return the loss of captions without any video."""
    return caption_loss(
        network(captions.tokens, captions.token_pad, no_video(len(captions))).logits,
        captions.targets,
        captions.token_pad,
        0.0,
    )


def no_video(count: int) -> CaptionContext:
    """Return a query of zeros for each caption."""
    return CaptionContext(torch.zeros(count, NETWORK_SETTINGS.width))


def shortened(data: CaptionTokens) -> CaptionTokens:
    """Return the captions without columns that are padding alone."""
    width = int((~data.token_pad).sum(1).max())
    return CaptionTokens(data.tokens[:, :width], data.targets[:, :width], data.token_pad[:, :width])


def train(
    network: Captioner, data: CaptionTokens, held_out: CaptionTokens, minutes: float
) -> dict[str, float]:
    """Train until time is up or the held-out part gets worse twice. The network is left as it was
    at its best."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    start = time.process_time()
    most_seconds = 60 * minutes
    best = math.inf
    best_weights: dict[str, torch.Tensor] = {}
    epoch = 0
    worse_epochs = 0
    while time.process_time() - start < most_seconds and worse_epochs < MAX_WORSE_EPOCHS:
        # One epoch, as far as the time allows
        network.train()
        for rows in torch.randperm(len(data)).split(BATCH_SIZE):
            loss = token_loss(network, shortened(data.take(rows))).mean
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            time_left = 1 - (time.process_time() - start) / most_seconds
            if time_left <= 0:
                break
            optimizer.param_groups[0]["lr"] = LEARNING_RATE * time_left
        # How good it is on sentences held out
        network.eval()
        score = surprise(network, held_out) / int((~held_out.token_pad).sum())
        epoch += 1
        seconds = time.process_time() - start
        message = f"held out {math.exp(score):.1f} a token, {seconds:.0f} CPU s"
        print(f"epoch {epoch}: {message}", flush=True)
        worse_epochs += 1
        if score < best:
            worse_epochs = 0
            best = score
            for name, value in network.state_dict().items():
                best_weights[name] = value.clone()
    network.load_state_dict(best_weights)
    return {"epochs": epoch, "cpu_s": time.process_time() - start, "held_out": math.exp(best)}


class Trigram:
    """Interpolated Kneser-Ney of order 3 over tokens, at its end uniform.

    after: by length of a context: context -> how often each token follows it.
    """

    def __init__(self, rows: Sequence[Sequence[int]], size: int) -> None:
        self.size = size
        self.after: list[dict[tuple[int, ...], Counter[int]]] = []
        for _ in range(3):
            self.after.append(defaultdict(Counter))
        for row in rows:
            for context, token in trigrams(row):
                self.after[2][context][token] += 1
        # Of shorter contexts: how many longer contexts a token follows
        for order in (1, 0):
            for context, tokens in self.after[order + 1].items():
                for token in tokens:
                    self.after[order][context[1:]][token] += 1

    def probability(self, context: tuple[int, ...], token: int) -> float:
        """Return P(token) after at most two tokens."""
        after = self.after[len(context)].get(context)
        lower = 1 / self.size
        if context:
            lower = self.probability(context[1:], token)
        if not after:
            return lower
        total = sum(after.values())
        own_share = max(after[token] - TRIGRAM_DISCOUNT, 0) / total
        lower_share = TRIGRAM_DISCOUNT * len(after) / total
        return own_share + lower_share * lower

    def surprise(self, rows: Sequence[Sequence[int]]) -> float:
        """Return the sum of -log P over all tokens of the rows."""
        total = 0.0
        for row in rows:
            total -= sum(math.log(self.probability(*trigram)) for trigram in trigrams(row))
        return total


def trigrams(row: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield each token of a sentence with the two tokens before it."""
    path = [BEGIN_TOKEN, BEGIN_TOKEN, *row]
    for place in range(2, len(path)):
        yield tuple(path[place - 2 : place]), path[place]


def unigram(rows: Sequence[Sequence[int]], test: Sequence[Sequence[int]], size: int) -> float:
    """Return the surprise of the test by how often each token comes, one added to each."""
    counter = Counter(token for row in rows for token in row)
    total = sum(counter.values()) + size
    return -sum(math.log((counter[token] + 1) / total) for row in test for token in row)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="CPU minutes of training at most"
    )
    parser.add_argument("--size", type=int, default=10_000, help="most tokens of the vocabulary")
    options = parser.parse_args()
    torch.manual_seed(0)
    videos = sentences("train")
    # The sentences to learn from, those that choose the epoch, and those of the test
    learnt = []
    held_out = []
    for number, video in enumerate(videos):
        part = held_out if number % 12 == 0 else learnt
        part.extend(video)
    test = [text for video in sentences("val") for text in video]
    # The captioner
    vocabulary = train_vocabulary(learnt, VocabularySettings(size=options.size))
    network = Captioner(NETWORK_SETTINGS, len(vocabulary))
    longest = NETWORK_SETTINGS.longest
    data = tokenize(learnt, vocabulary, longest)
    test_data = tokenize(test, vocabulary, longest)
    held_out_data = tokenize(held_out, vocabulary, longest)
    run = train(network, data, held_out_data, options.minutes)
    # Next to it a unigram and a trigram
    rows = [[*vocabulary.encode(text), END_TOKEN] for text in learnt]
    test_rows = [[*vocabulary.encode(text), END_TOKEN] for text in test]
    surprises = {
        "unigram": unigram(rows, test_rows, len(vocabulary)),
        "trigram": Trigram(rows, len(vocabulary)).surprise(test_rows),
        "captioner": surprise(network, test_data),
    }
    tokens = sum(map(len, test_rows))
    words = sum(len(text.split()) + 1 for text in test)
    perplexities = {}
    for name, value in surprises.items():
        perplexities[name] = {"token": math.exp(value / tokens), "word": math.exp(value / words)}
    sentence = generate(network, no_video(1), SearchSettings(beam=4))[0]
    result = {
        "vocabulary": {"size": len(vocabulary), "sha256": vocabulary.sha256},
        "train": counts(vocabulary, learnt),
        "val": counts(vocabulary, test) | {"cut": test_data.truncated},
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "run": run,
        "perplexity": perplexities,
        "says": vocabulary.decode(sentence.tokens),
    }
    text = json.dumps(result, indent=2, ensure_ascii=False)
    RESULT_PATH.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
