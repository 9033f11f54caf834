"""Narrated how-to videos into clean, time-aligned steps.

    import stepline

    record = stepline.steps("my_video.mp4")
    for step in record.steps:
        print(step.status, step.at, step.text)

Each name is imported when it is first used, so that `import stepline` loads no heavy library. What
is not here is imported from its package, for example `from stepline.features import FeatureStore`.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stepline.version import __version__

# Nothing leaves the machine: what dependencies would report of their use is switched off here,
# before any of them is imported. A value that the user has set stays.
for _variable, _off in {
    "DO_NOT_TRACK": "1",  # the common wish, https://consoledonottrack.com
    # onnxruntime (voice detection): looks its vendor up as soon as a process is 14 s old
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface_hub, transformers, datasets
    "PYANNOTE_METRICS_ENABLED": "0",  # pyannote.audio, which WhisperX brings
    "RAY_USAGE_STATS_ENABLED": "0",  # ray
}.items():
    os.environ.setdefault(_variable, _off)

if TYPE_CHECKING:
    from stepline.errors import SteplineError
    from stepline.grounding.ground import ground
    from stepline.outputs.alignment import read_alignment
    from stepline.outputs.write import write_outputs
    from stepline.pipeline.batch import batch, scores, steps, transcribe
    from stepline.pipeline.request import StepsSettings
    from stepline.records import Record, Sentence, Span, Step, Transcript
    from stepline.storage import read_parquet, read_record

__all__ = [
    "Record",
    "Sentence",
    "Span",
    "Step",
    "SteplineError",
    "StepsSettings",
    "Transcript",
    "__version__",
    "batch",
    "ground",
    "read_alignment",
    "read_parquet",
    "read_record",
    "scores",
    "steps",
    "transcribe",
    "write_outputs",
]

_MODULES = {
    "Record": "stepline.records",
    "Sentence": "stepline.records",
    "Span": "stepline.records",
    "Step": "stepline.records",
    "SteplineError": "stepline.errors",
    "StepsSettings": "stepline.pipeline.request",
    "Transcript": "stepline.records",
    "batch": "stepline.pipeline.batch",
    "ground": "stepline.grounding.ground",
    "read_alignment": "stepline.outputs.alignment",
    "read_parquet": "stepline.storage",
    "read_record": "stepline.storage",
    "scores": "stepline.pipeline.batch",
    "steps": "stepline.pipeline.batch",
    "transcribe": "stepline.pipeline.batch",
    "write_outputs": "stepline.outputs.write",
}


def __getattr__(name: str) -> Any:
    """Return a public name of Stepline, imported from its module on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(
            f"module 'stepline' has no attribute {name!r}; it offers {', '.join(__all__)}"
        )
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    dunders = (name for name in globals() if name.startswith("__"))
    return sorted({*dunders, *__all__})
