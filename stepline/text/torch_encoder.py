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
    """The layers of a post-norm transformer. A subclass sets the attributes.

    Attributes:
        config: the sizes.
        weights: name in the checkpoint -> tensor.
    """

    config: EncoderConfig
    weights: dict[str, Tensor]

    def run_layers(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the last layer's token vectors, (B, L, D).

        Args:
            hidden: input of the first layer, (B, L, D).
            mask: added to the attention scores, (B, 1 or H, 1 or L, L). -inf at padding.
        """
        for layer in range(self.config.layers):
            hidden = self._run_layer(layer, hidden, mask)
        return hidden

    def _run_layer(self, layer: int, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return one layer's output, (B, L, D): attention, then feed-forward, each added and
        normalised.

        Args:
            layer: index of the layer.
            hidden: (B, L, D).
            mask: as in `run_layers`.
        """
        name = layer_parts(self.config, layer)

        # attention of all heads
        query, key, value = (
            self._split_heads(name[part], hidden) for part in ("query", "key", "value")
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        attended = attended.transpose(1, 2).flatten(2)  # (B, L, D)
        hidden = hidden + self._linear(name["mix"], attended)
        hidden = self._norm(name["mix_norm"], hidden)

        # feed forward
        inner = F.gelu(self._linear(name["widen"], hidden))  # (B, L, 4 D)
        hidden = hidden + self._linear(name["narrow"], inner)  # (B, L, D)
        return self._norm(name["narrow_norm"], hidden)

    def _split_heads(self, name: str, hidden: Tensor) -> Tensor:
        """Return a linear layer's output, split by head: (B, H, L, D / H)."""
        rows = self._linear(name, hidden)  # (B, L, D)
        return rows.unflatten(2, (self.config.heads, -1)).transpose(1, 2)

    def _linear(self, name: str, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        scale = self.weights[f"{name}.weight"]
        shift = self.weights[f"{name}.bias"]
        return F.layer_norm(hidden, scale.shape, scale, shift, self.config.epsilon)


class TorchTransformer(PostNormLayers):
    """The transformer of `compile_transformer`, run by torch on a device."""

    def __init__(self, config: EncoderConfig, weights: dict[str, Array], device: Device) -> None:
        """Copy the weights to the device. weights: name in the checkpoint -> values."""
        self.config = config
        self._device = device
        self.weights = {name: self._tensor(values) for name, values in weights.items()}

    def _tensor(self, values: Array) -> Tensor:
        return torch.tensor(values).to(self._device.name)

    def __call__(self, hidden: Array, keep: Array, bias: Array | None = None) -> Array:
        """Return the last layer's token vectors, (B, L, D).

        Args:
            hidden: sum of word and position vectors, (B, L, D).
            keep: 0 where a token is padding, (B, L).
            bias: MPNet's bias of relative positions, (1, H, L, L). None for BERT.
        """
        with torch.inference_mode(), self._device.autocast():
            tokens = self._norm("embeddings.LayerNorm", self._tensor(hidden))  # (B, L, D)

            # which tokens each token attends to
            token_pad = self._tensor(keep) == 0
            mask = tokens.new_zeros(token_pad.shape).masked_fill(token_pad, NO_ATTENTION)
            mask = mask[:, None, None, :]  # (B, 1, 1, L)
            if bias is not None:
                mask = mask + self._tensor(bias)  # (B, H, L, L)
            vectors: Array = self.run_layers(tokens, mask).float().cpu().numpy()
        return vectors
