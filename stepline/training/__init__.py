"""One training loop for every network: AdamW, a cosine schedule, checkpoints that resume bit for bit."""

from stepline.training.checkpoints import CHECKPOINT
from stepline.training.log import LOG
from stepline.training.loop import Judge, Progress, Task, fit
from stepline.training.processes import first_then_all, is_first, start_processes

__all__ = [
    "CHECKPOINT",
    "LOG",
    "Judge",
    "Progress",
    "Task",
    "first_then_all",
    "fit",
    "is_first",
    "start_processes",
]
