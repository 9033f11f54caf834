"""How busy a worker's GPU is: what NVIDIA's driver says every few seconds, between tasks too."""

import os
import subprocess
import threading

LOOK_EVERY = 5.0  # seconds
PATIENCE = 30.0  # seconds for an answer
QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


class GpuUsage:
    """Looks at a GPU from its beginning on, until the driver does not answer; it dies with its
    process."""

    def __init__(self, device: str, interval: float = LOOK_EVERY) -> None:
        """device: as torch names it, such as "cuda:1"."""
        self._number, self._interval = driver_number(device), interval
        self._lock = threading.Lock()
        self._looks = self._busy = 0.0
        threading.Thread(target=self._watch, daemon=True, name="GPU usage").start()

    def take(self) -> dict[str, float]:
        """Return the looks since this was last asked, and the sum of the shares in [0, 1] that they
        found busy."""
        with self._lock:
            taken = {"gpu_looks": self._looks, "gpu_busy": round(self._busy, 4)}
            self._looks = self._busy = 0.0
        return taken if taken["gpu_looks"] else {}

    def _watch(self) -> None:
        while (share := busy_share(self._number)) is not None:
            with self._lock:
                self._looks, self._busy = self._looks + 1, self._busy + share
            threading.Event().wait(self._interval)


def driver_number(device: str) -> str:
    """Return what the driver calls a device: where CUDA_VISIBLE_DEVICES is set, torch counts those
    alone."""
    number = device.partition(":")[2] or "0"
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return shown[int(number)].strip() if any(shown) and int(number) < len(shown) else number


def busy_share(number: str) -> float | None:
    """Return the share of the last moment in which the GPU computed; None where no driver tells."""
    try:
        told = subprocess.run(
            [*QUERY, "-i", number], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        return float(told.stdout.strip()) / 100
    # no driver, a MIG part, a damaged card: not known
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
