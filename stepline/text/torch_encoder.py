"""The layers of a sentence encoder in torch, for GPUs and numbers other than float32.

Letters: B texts in a batch, L tokens, H heads, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.networks.device import Device
from stepline.text.encoder import Array, EncoderConfig, layer_parts

NO_ATTENTION = float("-inf")  # what is added to the score of a padded token


class PostNormLayers:
    """The layers of a post-norm transformer. A subclass sets `config` and `weights`."""

    config: EncoderConfig
    weights: dict[str, Tensor]

    def run_layers(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the last layer's token vectors (B, L, D).

        hidden: (B, L, D). mask: added to attention scores, (B, 1 or H, 1 or L, L).
        """
        for layer in range(self.config.layers):
            hidden = self._run_layer(layer, hidden, mask)
        return hidden

    def _run_layer(self, layer: int, hidden: Tensor, bias: Tensor) -> Tensor:
        """Return one layer's output (B, L, D): attention, then feed-forward, each added and
        normalised."""
        weight_names = layer_parts(self.config, layer)

        # attention of all heads
        query = self._split_heads(weight_names["query"], hidden)
        key = self._split_heads(weight_names["key"], hidden)
        value = self._split_heads(weight_names["value"], hidden)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        attended = attended.transpose(1, 2)
        attended = attended.flatten(2)  # (B, L, D)
        attended = self._linear(weight_names["mix"], attended)
        hidden = hidden + attended
        hidden = self._norm(weight_names["mix_norm"], hidden)

        # feed forward
        inner = self._linear(weight_names["widen"], hidden)  # (B, L, 4 D)
        inner = F.gelu(inner)
        projected = self._linear(weight_names["narrow"], inner)  # (B, L, D)
        hidden = hidden + projected
        return self._norm(weight_names["narrow_norm"], hidden)

    def _split_heads(self, name: str, hidden: Tensor) -> Tensor:
        """Return a linear layer's output, split by head: (B, H, L, D / H)."""
        rows = self._linear(name, hidden)  # (B, L, D)
        return rows.unflatten(2, (self.config.heads, -1)).transpose(1, 2)

    def _linear(self, name: str, hidden: Tensor) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        bias = self.weights[f"{name}.bias"]
        return F.linear(hidden, weight, bias)

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        scale = self.weights[f"{name}.weight"]
        shift = self.weights[f"{name}.bias"]
        sizes = scale.shape
        epsilon = self.config.epsilon
        return F.layer_norm(hidden, sizes, scale, shift, epsilon)


class TorchTransformer(PostNormLayers):
    """The transformer of `compile_transformer`, run by torch on a device."""

    def __init__(self, config: EncoderConfig, weights: dict[str, Array], device: Device) -> None:
        self.config = config
        self._device = device
        self.weights = {}
        for name, values in weights.items():
            self.weights[name] = self._tensor(values)

    def _tensor(self, values: Array) -> Tensor:
        tensor = torch.tensor(values)
        return tensor.to(self._device.name)

    def __call__(self, hidden: Array, keep: Array, bias: Array | None = None) -> Array:
        """Return the last layer's token vectors (B, L, D)."""
        with torch.inference_mode(), self._device.autocast():
            tokens = self._tensor(hidden)  # (B, L, D)
            tokens = self._norm("embeddings.LayerNorm", tokens)

            # which tokens each token attends to
            token_keep = self._tensor(keep)
            token_pad = token_keep == 0
            mask = tokens.new_zeros(token_pad.shape)
            mask = mask.masked_fill(token_pad, NO_ATTENTION)
            mask = mask[:, None, None, :]  # (B, 1, 1, L)
            if bias is not None:
                distances = self._tensor(bias)
                mask = mask + distances  # (B, H, L, L)
            tokens = self.run_layers(tokens, mask)
            tokens = tokens.float()
            vectors: Array = tokens.cpu().numpy()
        return vectors
