"""CLIP and SigLIP checkpoints, read by `transformers`.

No other backbone may use the internet, and this one only on request (`vision.hub`).

Sources: Radford et al. 2021 (CLIP), Zhai et al. 2023 (SigLIP).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepline.errors import ModelError, SettingsError, first_line
from stepline.networks.device import current_device
from stepline.records import Matrix
from stepline.vision.encode import Images, check_images
from stepline.vision.settings import VisionSettings

# of the tokens that the weights know, the least that a tokenizer has. Weights may be padded with a few
MIN_VOCABULARY_FRACTION = 0.5


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
        # Some tokenizers name no limit, or a larger one than the network's.
        limits = (
            processor.tokenizer.model_max_length,
            _text_settings(model).max_position_embeddings,
        )
        self._max_tokens = min(limits)
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
                list(batch),
                padding=self._padding,
                truncation=True,
                max_length=self._max_tokens,
                return_tensors="pt",
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
    cure = "give a whole CLIP or SigLIP checkpoint"
    # Both inputs are tried, so that files that do not fit one another are refused before any work.
    try:
        options = {"local_files_only": hub is None}
        model, report = AutoModel.from_pretrained(source, output_loading_info=True, **options)
        processor = AutoProcessor.from_pretrained(source, **options)
        backbone = CLIPBackbone(model.eval(), processor, batch=settings.batch)
        width = backbone.encode_images(np.zeros((1, 64, 64, 3), np.uint8)).shape[1]
    # transformers raises almost anything for a folder that is not what it expects
    except Exception as error:
        raise ModelError(f"{source}: cannot be loaded ({first_line(error)}); {cure}") from error
    # transformers would fill the weights that are missing with random numbers, and make a tokenizer
    # almost without words where its files are missing.
    missing_keys = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if missing_keys:
        raise ModelError(f"{source}: lacks the weight {missing_keys[0]}; {cure}")
    words = len(processor.tokenizer)
    known_words = _text_settings(model).vocab_size
    if words < MIN_VOCABULARY_FRACTION * known_words:
        fault = f"its tokenizer has {words} tokens, its weights are of {known_words}"
        raise ModelError(f"{source}: {fault}; put the checkpoint's own tokenizer.json there")
    if width != backbone.dim:
        fault = f"vectors of pictures are {width} wide, those of texts {backbone.dim}"
        raise ModelError(f"{source}: {fault}; {cure}")
    return backbone


def _text_settings(model: Any) -> Any:
    return model.config.text_config
