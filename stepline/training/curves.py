"""The numbers of a run as curves that TensorBoard draws; an optional extra."""

from pathlib import Path

from stepline.errors import SettingsError
from stepline.training.loop import Progress


class Curves:
    """Writes each step's loss, learning rate, score and share of the time spent waiting for samples.

    Raises SettingsError where TensorBoard's package is missing.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            cure = "pip install 'stepline[train]', or leave --tensorboard out"
            raise SettingsError(f"TensorBoard's package is not here; {cure}") from error
        self._kind, self._folder = SummaryWriter, folder
        self._writer: SummaryWriter | None = None

    def write(self, progress: Progress) -> None:
        """Add a point to each curve; points of steps that a resumed run takes again go."""
        if self._writer is None:
            self._writer = self._kind(str(self._folder), purge_step=progress.step)
        waited = progress.waited / max(progress.seconds, 1e-9)
        values = {"loss": progress.loss, "learning_rate": progress.learning_rate, "waited": waited}
        for name, value in values.items() if progress.score is None else (values | {"score": progress.score}).items():
            self._writer.add_scalar(name, value, progress.step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
