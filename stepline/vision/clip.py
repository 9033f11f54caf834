"""CLIP and SigLIP checkpoints, read by `transformers`.

No other backbone may use the internet, and this one only on request (`vision.hub`).

Sources: Radford et al. 2021 (CLIP), Zhai et al. 2023 (SigLIP).
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import ModelError, SettingsError, first_line
from stepline.limits import parse_json
from stepline.networks.device import current_device
from stepline.records import Matrix
from stepline.vision.encode import Images, check_images
from stepline.vision.settings import VisionSettings


class CLIPBackbone:
    """A CLIP or SigLIP dual encoder of `transformers`, with its own image and text processor."""

    name = "clip"

    def __init__(self, model: Any, processor: Any, *, batch: int) -> None:
        """Wrap a loaded checkpoint.

        Args:
            model: dual encoder of `transformers`.
            processor: processor of `transformers` that prepares images and texts for the model.
            batch: number of texts that are encoded together.
        """
        self._device = current_device()
        self._model = model.to(self._device.name)
        self._processor = processor
        self._batch = batch
        # SigLIP was trained on texts padded to its full length without a mask. CLIP masks its
        # padding.
        is_siglip = model.config.model_type.startswith("siglip")
        self._padding = "max_length" if is_siglip else True
        self.dim = self.encode_texts(["a"]).shape[1]

    def encode_images(self, images: Images) -> Matrix:
        """Return unit vectors (B, D) float32 of uint8 RGB images (B, H, W, 3)."""
        check_images(images)
        if not len(images):
            return np.empty((0, self.dim), dtype=np.float32)
        inputs = self._processor.image_processor(images=list(images), return_tensors="pt")
        return self._unit_rows(self._model.get_image_features, inputs)

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors (K, D) float32 of K texts.

        A text over the checkpoint's limit is truncated.
        """
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        rows = []
        for start in range(0, len(texts), self._batch):
            batch = texts[start : start + self._batch]
            inputs = self._processor.tokenizer(
                list(batch), padding=self._padding, truncation=True, return_tensors="pt"
            )
            rows.append(self._unit_rows(self._model.get_text_features, inputs))
        return np.concatenate(rows)

    def _unit_rows(self, encode: Any, inputs: Any) -> Matrix:
        import torch

        with torch.inference_mode(), self._device.autocast():
            vectors = encode(**inputs.to(self._device.name))
            if not isinstance(vectors, torch.Tensor):
                vectors = vectors.pooler_output  # (B, D)
            return np.asarray(torch.nn.functional.normalize(vectors.float(), dim=1).cpu())


def load_clip(settings: VisionSettings) -> CLIPBackbone:
    """Return the CLIP or SigLIP checkpoint that the settings name.

    It is in the folder `settings.path`, or has the name `settings.hub` on the model hub. Raises
    SettingsError unless exactly one of them is set. Raises ModelError if the checkpoint is missing,
    incomplete or not a dual encoder.
    """
    path = settings.path
    hub = settings.hub
    if (path is None) == (hub is None):
        raise SettingsError(
            "vision.backbone=clip needs one of vision.path=FOLDER and vision.hub=NAME (a download)"
        )
    if path is not None and not path.is_dir():
        raise ModelError(
            f"{path}: no such folder; give a CLIP or SigLIP checkpoint for transformers"
        )
    try:
        from transformers import AutoModel, AutoProcessor
    except ImportError as error:
        raise ModelError(
            f"clip needs transformers ({error}); pip install -c constraints.txt 'stepline[clip]'"
        ) from error
    # Only a name on the hub may use the network.
    source = str(path or hub)
    try:
        options = {"local_files_only": hub is None}
        model, report = AutoModel.from_pretrained(source, output_loading_info=True, **options)
        processor = AutoProcessor.from_pretrained(source, **options)
    # transformers raises almost anything for a folder that is not what it expects
    except Exception as error:
        reason = first_line(error)
        raise ModelError(
            f"{source}: cannot be loaded ({reason}); give a whole CLIP or SigLIP checkpoint"
        ) from error
    # A dual encoder has both encoders, and processors of both inputs.
    has_encoders = hasattr(model, "get_image_features") and hasattr(model, "get_text_features")
    has_processors = hasattr(processor, "image_processor") and hasattr(processor, "tokenizer")
    if not (has_encoders and has_processors):
        raise ModelError(
            f"{source}: a {model.config.model_type} model, not a dual encoder; give CLIP or SigLIP"
        )
    # transformers would fill the weights that are missing with random numbers.
    missing_keys = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if missing_keys:
        raise ModelError(f"{source}: lacks the weight {missing_keys[0]}; give a whole checkpoint")
    return CLIPBackbone(model.eval(), processor, batch=settings.batch)


def read_clip_width(folder: Path) -> int | None:
    """Return the width of a CLIP checkpoint's vectors, from its config.json.

    None if the file does not state it, as in SigLIP checkpoints, or if it cannot be read. `load_clip`
    raises the error then.
    """
    with suppress(OSError, ValueError):
        config = parse_json((folder / "config.json").read_bytes())
        width = config.get("projection_dim") if isinstance(config, dict) else None
        return width if isinstance(width, int) else None
    return None
