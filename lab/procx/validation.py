"""Validation of a training: the mean of SODA-D and SODA-C on videos that it is not trained on.

Speech is not read. The weights of the best score are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from lab.procx.vid2seq import TimedVocabulary, Vid2SeqSample, predict_steps, vid2seq_sample
from stepline.evaluate.soda import soda
from stepline.models.procx.batch import StepSample
from stepline.models.procx.train import SCORING_BATCH, soda_scorer
from stepline.models.procx.vocabulary import Vocabulary
from stepline.models.training.loop import HeldOutScorer


@dataclass(frozen=True)
class BestWeights:
    """The weights of the network that scored best, empty before the first score."""

    weights: dict[str, Tensor] = field(default_factory=dict)

    def keep(self, network: nn.Module) -> None:
        """Copy the network's weights over those that were kept."""
        self.weights.clear()
        for name, weight in network.state_dict().items():
            self.weights[name] = weight.clone()

    def restore(self, network: nn.Module) -> None:
        """Load the kept weights. Without a score the network stays as it is."""
        if self.weights:
            network.load_state_dict(self.weights)

    def scorer(
        self, samples: Sequence[StepSample], vocabulary: Vocabulary
    ) -> HeldOutScorer[StepSample]:
        """Return the scorer of ProcX and PDVC, which keeps the best weights here."""
        return soda_scorer(samples, self.keep, vocabulary)

    def vid2seq_scorer(
        self, samples: Sequence[StepSample], vocabulary: TimedVocabulary
    ) -> HeldOutScorer[Vid2SeqSample]:
        """Return the scorer of the sequence baseline, which keeps the best weights here."""

        def measure(network: nn.Module, batch: Sequence[Vid2SeqSample]) -> tuple[float, float]:
            truth = {sample.id: sample.events for sample in batch}
            steps = predict_steps(network, vocabulary, [sample.video for sample in batch])
            events = {}
            for sample, parsed in zip(batch, steps, strict=True):
                events[sample.id] = parsed.events
            places = soda(truth, events, kind="d").f1
            words = soda(truth, events, kind="c").f1
            # A sum, since the loop divides by all videos at the end.
            return len(batch) * (places + words) / 2, float(len(batch))

        own_samples = [vid2seq_sample(sample) for sample in samples]
        return HeldOutScorer(own_samples, SCORING_BATCH, measure, self.keep)
