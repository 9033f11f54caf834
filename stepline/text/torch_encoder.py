"""The layers of a sentence encoder in torch, for GPUs and numbers other than float32.

Letters: B texts in a batch, L tokens, H heads, D width.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.device import Device
from stepline.text.encoder_config import Array, EncoderConfig, layer_parts


class TorchTransformer:
    """The same as `compile_transformer` returns, run by torch on a device."""

    def __init__(self, config: EncoderConfig, weights: Mapping[str, Array], device: Device) -> None:
        self.config = config
        self._device = device
        self.weights = {name: self._tensor(value) for name, value in weights.items()}

    def _tensor(self, values: Array) -> Tensor:
        return torch.tensor(values).to(self._device.name)

    def __call__(self, hidden: Array, keep: Array, bias: Array | None = None) -> Array:
        """Return the last layer's token vectors (B, L, D)."""
        with torch.inference_mode(), self._device.autocast():
            tokens = self._norm("embeddings.LayerNorm", self._tensor(hidden))  # (B, L, D)
            pad = self._tensor(keep) == 0
            # (B, 1, 1, L)
            mask = tokens.new_zeros(pad.shape).masked_fill(pad, float("-inf"))[:, None, None, :]
            if bias is not None:
                mask = mask + self._tensor(bias)  # (B, H, L, L)
            for layer in range(self.config.layers):
                tokens = self._layer(layer, tokens, mask)
            vectors: Array = tokens.float().cpu().numpy()
        return vectors

    def _layer(self, layer: int, hidden: Tensor, bias: Tensor) -> Tensor:
        """Attend, then feed forward, each added and normalised (post-norm). hidden: (B, L, D)."""
        part = layer_parts(self.config, layer)
        inputs = []  # query, key and value, each (B, H, L, D / H)
        for name in ("query", "key", "value"):
            rows = self._linear(part[name], hidden)  # (B, L, D)
            inputs.append(rows.unflatten(2, (self.config.heads, -1)).transpose(1, 2))
        query, key, value = inputs
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        mixed = mixed.transpose(1, 2).flatten(2)  # (B, L, D)
        hidden = self._norm(part["mix_norm"], hidden + self._linear(part["mix"], mixed))
        inner = F.gelu(self._linear(part["widen"], hidden))  # (B, L, 4 D)
        return self._norm(part["narrow_norm"], hidden + self._linear(part["narrow"], inner))

    def _linear(self, name: str, hidden: Tensor) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        return F.linear(hidden, weight, self.weights[f"{name}.bias"])

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        scale = self.weights[f"{name}.weight"]
        shift = self.weights[f"{name}.bias"]
        return F.layer_norm(hidden, scale.shape, scale, shift, self.config.epsilon)
