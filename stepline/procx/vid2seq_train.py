"""Training the sequence baseline, and what it says of videos. Letters: B videos, W tokens, A tokens of speech."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from stepline.evaluate.events import Event
from stepline.procx.batch import Sample, videos
from stepline.procx.captioner import Context
from stepline.procx.captions import Captions, captions_of, padded_tokens
from stepline.procx.losses import caption_loss
from stepline.procx.search import write
from stepline.procx.text_settings import SearchSettings
from stepline.procx.vid2seq import Vid2Seq
from stepline.procx.vid2seq_sequence import Alphabet, Parsed, parse, sequence
from stepline.procx.vid2seq_settings import Vid2SeqSettings
from stepline.records import Matrix, Sentence
from stepline.training import Progress, Task, fit
from stepline.training.loss import Loss
from stepline.training_settings import TrainSettings


@dataclass(frozen=True)
class Watched:
    """A video as the baseline gets it. values: (T, C) over `duration` seconds; said: None where nobody listens."""

    values: Matrix
    duration: float
    said: tuple[Sentence, ...] | None = None


@dataclass(frozen=True)
class Told:
    """A video to learn from: its steps in any order."""

    id: str
    video: Watched
    events: tuple[Event, ...]


def told(sample: Sample, said: Sequence[Sentence] | None = None) -> Told:
    """Return a sample of ProcX as one of this baseline; said: its whole narration, where that is to be read."""
    events = tuple((*span, text) for span, text in zip(sample.spans, sample.sentences, strict=True))
    return Told(sample.id, Watched(sample.values, sample.duration, None if said is None else tuple(said)), events)


def train_vid2seq(
    samples: Sequence[Told],
    folder: Path,
    *,
    alphabet: Alphabet,
    model: Vid2SeqSettings | None = None,
    settings: TrainSettings | None = None,
    start: Vid2Seq | None = None,
    report: Callable[[Progress], None] | None = None,
    device: str | torch.device = "cpu",
) -> Vid2Seq:
    """Return a network trained on the samples, from fresh weights or on from those of `start`, at rest.

    A run in `folder` that was killed is taken up. Raises ShapeError when there is nothing to train on.
    """
    settings = settings or TrainSettings()
    torch.manual_seed(settings.seed)  # of fresh weights
    network = start or Vid2Seq(model or Vid2SeqSettings(), len(alphabet))
    network.to(device)
    fit(network, vid2seq_task(samples, alphabet, network.settings), settings, folder, report)
    return network


def vid2seq_task(samples: Sequence[Told], alphabet: Alphabet, settings: Vid2SeqSettings) -> Task[Told]:
    """Return what training learns: the next token of every video's sequence, videos of as many steps together."""

    def losses(network: nn.Module, chosen: Sequence[Told]) -> list[Loss]:
        wanted = sequences(chosen, alphabet, settings.longest).to(next(network.parameters()).device)
        context = context_of(network, [one.video for one in chosen], alphabet)
        logits = network(wanted.tokens, context)
        return [caption_loss(logits, wanted.wanted, wanted.token_pad, settings.label_smoothing)]

    return Task(samples, lambda one: len(one.events), lambda chosen, _: chosen, losses)


def sequences(samples: Sequence[Told], alphabet: Alphabet, longest: int) -> Captions:
    """Return the videos' sequences as padded tensors; `cut`: how many were longer than `longest`, the end mark too."""
    return captions_of([sequence(one.events, one.video.duration, alphabet) for one in samples], longest)


def context_of(network: Vid2Seq, watched: Sequence[Watched], alphabet: Alphabet) -> Context:
    """Return what the network writes about: videos at the network's length, and what is said where anybody listens."""
    settings = network.settings
    device = next(network.parameters()).device
    seen = videos([one.values for one in watched], [one.duration for one in watched], settings.rows, settings.features)
    speech: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if any(one.said is not None for one in watched):
        rows, pad = padded_tokens([_heard(one, alphabet)[: settings.longest_speech] for one in watched])
        speech = rows.to(device), pad.to(device)
    context: Context = network.context(seen.values.to(device), *speech)
    return context


def _heard(watched: Watched, alphabet: Alphabet) -> list[int]:
    """Return what is said as a sequence of times and words; sentences after the video's end stand at its end."""
    events = [(one.span.start, one.span.end, one.text) for one in watched.said or ()]
    return sequence(events, watched.duration, alphabet)


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def tell(
    network: Vid2Seq,
    alphabet: Alphabet,
    watched: Sequence[Watched],
    search: SearchSettings | None = None,
    *,
    at_once: int = 32,
) -> list[Parsed]:
    """Return the steps of each video, none where no row is known; the network should be at rest (eval)."""
    found: dict[int, Parsed] = {number: Parsed((), ()) for number, one in enumerate(watched) if not len(one.values)}
    asked = [number for number in range(len(watched)) if number not in found]
    for first in range(0, len(asked), at_once):
        part = asked[first : first + at_once]
        context = context_of(network, [watched[number] for number in part], alphabet)
        for number, one in zip(part, write(network, context, search), strict=True):
            found[number] = parse(one.tokens, watched[number].duration, alphabet)
    return [found[number] for number in range(len(watched))]
