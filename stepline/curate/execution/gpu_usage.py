"""How busy a worker's GPU is, by NVIDIA's driver, every few seconds, between tasks too."""

import os
import subprocess
import threading

LOOK_INTERVAL = 5.0  # seconds
ANSWER_SECONDS = 30.0  # that the driver may take
DRIVER_COMMAND = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


class GpuUsage:
    """Looks at a GPU from its beginning on, until the driver does not answer. It dies with its
    process."""

    def __init__(self, device: str, interval: float = LOOK_INTERVAL) -> None:
        """device: as torch names it, such as "cuda:1"."""
        self._number = driver_number(device)
        self._interval = interval
        self._lock = threading.Lock()
        self._looks = 0.0
        self._busy = 0.0
        thread = threading.Thread(target=self._watch, daemon=True, name="GPU usage")
        thread.start()

    def take(self) -> dict[str, float]:
        """Return the looks since this was last asked, and the sum of the shares in [0, 1] that they
        found busy."""
        # Looks and busy time start again, so that each task logs its own.
        with self._lock:
            looks = self._looks
            busy = self._busy
            self._looks = 0.0
            self._busy = 0.0
        if not looks:
            return {}
        return {"gpu_looks": looks, "gpu_busy": round(busy, 4)}

    def _watch(self) -> None:
        while (share := busy_share(self._number)) is not None:
            with self._lock:
                self._looks += 1
                self._busy += share
            threading.Event().wait(self._interval)


def driver_number(device: str) -> str:
    """Return the driver's name of a device: where CUDA_VISIBLE_DEVICES is set, torch counts those
    alone."""
    _, _, ending = device.partition(":")
    number = ending or "0"
    # Names of CUDA_VISIBLE_DEVICES may be numbers or UUIDs, and nvidia-smi takes both.
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if not any(names) or int(number) >= len(names):
        return number
    return names[int(number)].strip()


def busy_share(number: str) -> float | None:
    """Return the share of the last moment in which the GPU computed, or None where no driver
    answers."""
    try:
        command = [*DRIVER_COMMAND, "-i", number]
        percent = subprocess.check_output(
            command, stderr=subprocess.DEVNULL, timeout=ANSWER_SECONDS
        )
        return float(percent) / 100
    # No driver, a MIG part, a damaged card: not known.
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
