"""The grounding network as anyone would write it from PyTorch's own layers: what stepline's is
measured against.

Two of them. `PlainAligner` is nn.TransformerEncoder and nn.TransformerDecoder with positions added
once at the input, the fewest operations that such a network can have. `EqualAligner` computes
exactly what `stepline.nasva.Aligner` does, positions at every attention, from
nn.MultiheadAttention, and can take its weights. Letters: B batch, K texts, T feature rows, D width,
d projection, L decoder layers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.nasva.model import Aligner, AlignerOutput, sine_positions
from stepline.nasva.settings import AlignerNetworkSettings
from stepline.training.batches import Batch


class PlainAligner(nn.Module):
    """nn.TransformerEncoder and nn.TransformerDecoder. `attention_dropout` of the settings goes to
    every attention."""

    def __init__(self, settings: AlignerNetworkSettings) -> None:
        super().__init__()
        sizes = {
            "dim_feedforward": settings.feed_forward,
            "dropout": settings.dropout,
            "batch_first": True,
        }
        encoder = nn.TransformerEncoderLayer(settings.width, settings.heads, **sizes)
        decoder = nn.TransformerDecoderLayer(settings.width, settings.heads, **sizes)
        self.encoder = nn.TransformerEncoder(encoder, settings.encoder_layers)
        self.decoder = nn.TransformerDecoder(
            decoder, settings.decoder_layers, nn.LayerNorm(settings.width)
        )
        self.video_in = nn.Sequential(
            nn.Linear(settings.video_width, settings.width), nn.LayerNorm(settings.width)
        )
        self.text_in = nn.Sequential(
            nn.Linear(settings.text_width, settings.width), nn.LayerNorm(settings.width)
        )
        self.text_place = nn.Embedding(settings.text_positions, settings.width)
        self.video_out = nn.Linear(settings.width, settings.projection)
        self.text_out = nn.Linear(settings.width, settings.projection)
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = settings.attention_dropout

    def forward(self, batch: Batch) -> AlignerOutput:
        """Return unit vectors of texts (L, B, K, d) and seconds (B, T, d)."""
        place = sine_positions(
            batch.video.shape[1], self.text_place.embedding_dim, batch.video.device
        )
        video = self.encoder(
            self.video_in(batch.video) + place, src_key_padding_mask=batch.video_pad
        )
        lost = batch.video_pad.shape[1] - video.shape[1]  # its fast path drops a padded end
        video = F.pad(video, (0, 0, 0, lost))
        text = self.text_in(batch.text)
        text = text + self.text_place.weight[: text.shape[1]] * batch.ordered[:, None, None]
        outputs = []
        for layer in self.decoder.layers:
            text = layer(
                text,
                video,
                tgt_key_padding_mask=batch.text_pad,
                memory_key_padding_mask=batch.video_pad,
            )
            outputs.append(self.decoder.norm(text))
        return AlignerOutput(
            F.normalize(self.text_out(torch.stack(outputs)), dim=-1),
            F.normalize(self.video_out(video), dim=-1),
            None,
        )


class EqualAligner(nn.Module):
    """The same function as `Aligner` of the released form, from nn.MultiheadAttention."""

    def __init__(self, settings: AlignerNetworkSettings) -> None:
        super().__init__()
        self.parts = PlainAligner(settings)
        self.scale = settings.feature_scale == "unit_variance"

    def forward(self, batch: Batch) -> AlignerOutput:
        """Return unit vectors of texts (L, B, K, d) and seconds (B, T, d)."""
        parts = self.parts
        place = sine_positions(
            batch.video.shape[1], parts.text_place.embedding_dim, batch.video.device
        )
        video = parts.video_in(self._scaled(batch.video))
        for layer in parts.encoder.layers:
            where = video + place
            mixed = layer.self_attn(
                where, where, video, key_padding_mask=batch.video_pad, need_weights=False
            )[0]
            video = layer.norm1(video + layer.dropout1(mixed))
            inner = layer.dropout(F.relu(layer.linear1(video)))
            video = layer.norm2(video + layer.dropout2(layer.linear2(inner)))
        text = parts.text_in(self._scaled(batch.text))
        order = parts.text_place.weight[: text.shape[1]] * batch.ordered[:, None, None]
        outputs = []
        for layer in parts.decoder.layers:
            text = self._decode(layer, text, order, video, place, batch)
            outputs.append(parts.decoder.norm(text))
        return AlignerOutput(
            F.normalize(parts.text_out(torch.stack(outputs)), dim=-1),
            F.normalize(parts.video_out(video), dim=-1),
            None,
        )

    @staticmethod
    def _decode(
        layer: nn.Module, text: Tensor, order: Tensor, video: Tensor, place: Tensor, batch: Batch
    ) -> Tensor:
        where = text + order
        mixed = layer.self_attn(
            where, where, text, key_padding_mask=batch.text_pad, need_weights=False
        )[0]
        text = layer.norm1(text + layer.dropout1(mixed))
        seen = layer.multihead_attn(
            text + order, video + place, video, key_padding_mask=batch.video_pad, need_weights=False
        )[0]
        text = layer.norm2(text + layer.dropout2(seen))
        inner = layer.dropout(F.relu(layer.linear1(text)))
        return layer.norm3(text + layer.dropout3(layer.linear2(inner)))

    def _scaled(self, rows: Tensor) -> Tensor:
        return (
            rows * rows.square().mean(-1, keepdim=True).clamp(min=1e-12).rsqrt()
            if self.scale
            else rows
        )

    @classmethod
    def of(cls, model: Aligner) -> "EqualAligner":
        """Return one with the weights of a network of ours."""
        names = {
            "attention.project.": "self_attn.in_proj_",
            "attention.out": "self_attn.out_proj",
            "attention_norm": "norm1",
            "self_norm": "norm1",
            "cross_norm": "norm2",
            "feed.wide": "linear1",
            "feed.narrow": "linear2",
        }
        taken = {}
        for key, value in model.state_dict().items():
            named = key.replace("decoder_norm", "decoder.norm")
            last = "norm2" if named.startswith("encoder") else "norm3"
            named = named.replace("feed_norm", last)
            named = named.replace("cross_attention.project.", "multihead_attn.in_proj_").replace(
                "self_att", "att"
            )
            named = named.replace("cross_attention.out", "multihead_attn.out_proj")
            for ours, theirs in names.items():
                named = named.replace(ours, theirs)
            for part in ("encoder.", "decoder."):
                if named.startswith(part) and named[len(part)].isdigit():
                    named = part + "layers." + named[len(part) :]
            taken[f"parts.{named}"] = value
        equal = cls(model.settings)
        equal.load_state_dict(taken)
        return equal


def plain_loss(aligned: AlignerOutput, batch: Batch, temperature: float = 0.07) -> Tensor:
    """Return the released loss as its formula reads: rivals from the whole batch, every decoder
    layer, all rows."""
    layers, size, texts, seconds = *aligned.text.shape[:3], aligned.video.shape[1]
    shown = batch.positive & ~batch.video_pad[:, None] & ~batch.text_pad[:, :, None]  # (B, K, T)
    positive = torch.zeros(size, texts, size, seconds, dtype=torch.bool, device=shown.device)
    for number in range(size):
        positive[number, :, number] = shown[number]
    positive = positive.view(size * texts, size * seconds)  # (B K, B T)
    total = aligned.text.new_zeros(())
    for text in aligned.text:
        logits = text.flatten(0, 1) @ aligned.video.flatten(0, 1).T / temperature  # (B K, B T)
        logits = logits.masked_fill(batch.video_pad.flatten(), -1e4)
        # (B K,)
        losses = logits.logsumexp(dim=1) - logits.masked_fill(~positive, -1e4).logsumexp(dim=1)
        total = total + losses[positive.any(dim=1)].sum()
    return total / layers / (size * texts)
