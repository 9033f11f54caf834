"""Stepline: narrated how-to videos into clean, time-aligned steps."""

import os
from importlib.metadata import PackageNotFoundError, version

# Nothing leaves the machine: what dependencies would report of their use is switched off here, before any of them is
# imported. A value that the user has set stays.
for _variable, _off in {
    "DO_NOT_TRACK": "1",  # the common wish, https://consoledonottrack.com
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime (voice detection): looks its vendor up once a process is 14 s old
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface_hub, transformers, datasets
    "PYANNOTE_METRICS_ENABLED": "0",  # pyannote.audio, which WhisperX brings
    "RAY_USAGE_STATS_ENABLED": "0",  # ray
}.items():
    os.environ.setdefault(_variable, _off)

try:
    __version__ = version("stepline")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
