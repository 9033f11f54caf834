"""One training loop for every network: AdamW, a cosine schedule, checkpoints that resume bit for bit."""

from stepline.training.checkpoints import CHECKPOINT
from stepline.training.curves import Curves
from stepline.training.log import LOG
from stepline.training.loop import Judge, Progress, Task, fit
from stepline.training.processes import end_processes, first_then_all, is_first, peak_memory, start_processes

__all__ = [
    "CHECKPOINT",
    "LOG",
    "Curves",
    "Judge",
    "Progress",
    "Task",
    "end_processes",
    "first_then_all",
    "fit",
    "is_first",
    "peak_memory",
    "start_processes",
]
