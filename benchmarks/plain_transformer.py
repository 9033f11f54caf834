"""The grounding network as anyone would write it from PyTorch's own layers: what stepline's is
measured against.

Two of them. `PlainAligner` is nn.TransformerEncoder and nn.TransformerDecoder with positions added
once at the input, the fewest operations that such a network can have. `EqualAligner` computes
exactly what `stepline.models.nasva.Aligner` does, positions at every attention, from
nn.MultiheadAttention, and can take its weights. Letters: B batch, K texts, T feature rows, D width,
d projection, L decoder layers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.models.nasva.model import Aligner, AlignerOutput, sine_positions
from stepline.models.nasva.settings import AlignerNetworkSettings
from stepline.models.training.batches import Batch


class PlainAligner(nn.Module):
    """nn.TransformerEncoder and nn.TransformerDecoder. `attention_dropout` of the settings goes to
    every attention."""

    def __init__(self, settings: AlignerNetworkSettings) -> None:
        super().__init__()
        width = settings.width
        sizes = {
            "dim_feedforward": settings.feed_forward,
            "dropout": settings.dropout,
            "batch_first": True,
        }
        encoder = nn.TransformerEncoderLayer(width, settings.heads, **sizes)
        decoder = nn.TransformerDecoderLayer(width, settings.heads, **sizes)
        norm = nn.LayerNorm(width)
        self.encoder = nn.TransformerEncoder(encoder, settings.encoder_layers)
        self.decoder = nn.TransformerDecoder(decoder, settings.decoder_layers, norm)
        self.video_in = nn.Sequential(nn.Linear(settings.video_width, width), nn.LayerNorm(width))
        self.text_in = nn.Sequential(nn.Linear(settings.text_width, width), nn.LayerNorm(width))
        self.text_place = nn.Embedding(settings.text_positions, width)
        self.video_out = nn.Linear(width, settings.projection)
        self.text_out = nn.Linear(width, settings.projection)
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = settings.attention_dropout

    def forward(self, batch: Batch) -> AlignerOutput:
        """Return unit vectors of texts (L, B, K, d) and seconds (B, T, d)."""
        # positions are added once, at the input
        rows = self.video_in(batch.video) + self.video_positions(batch)
        video = self.encoder(rows, src_key_padding_mask=batch.video_pad)
        # the fast path of nn.TransformerEncoder drops a padded end
        dropped_rows = batch.video_pad.shape[1] - video.shape[1]
        video = F.pad(video, (0, 0, 0, dropped_rows))
        text = self.text_in(batch.text)
        text = text + self.text_positions(batch)
        outputs = []
        for layer in self.decoder.layers:
            text = layer(
                text,
                video,
                tgt_key_padding_mask=batch.text_pad,
                memory_key_padding_mask=batch.video_pad,
            )
            outputs.append(self.decoder.norm(text))
        return self.output(outputs, video)

    def video_positions(self, batch: Batch) -> Tensor:
        """Return the sine positions (T, D) of the seconds."""
        seconds = batch.video.shape[1]
        return sine_positions(seconds, self.text_place.embedding_dim, batch.video.device)

    def text_positions(self, batch: Batch) -> Tensor:
        """Return the learnt positions (B, K, D) of the texts, 0 where they have no order."""
        positions = self.text_place.weight[: batch.text.shape[1]]
        return positions * batch.ordered[:, None, None]

    def output(self, texts: list[Tensor], video: Tensor) -> AlignerOutput:
        """Return the unit vectors of each decoder layer's texts and of the seconds."""
        text_vectors = self.text_out(torch.stack(texts))
        video_vectors = self.video_out(video)
        return AlignerOutput(
            F.normalize(text_vectors, dim=-1), F.normalize(video_vectors, dim=-1), None
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
        positions = parts.video_positions(batch)
        video = parts.video_in(self._scaled(batch.video))
        for layer in parts.encoder.layers:
            video = self._encode(layer, video, positions, batch)
        text = parts.text_in(self._scaled(batch.text))
        order = parts.text_positions(batch)
        outputs = []
        for layer in parts.decoder.layers:
            text = self._decode(layer, text, order, video, positions, batch)
            outputs.append(parts.decoder.norm(text))
        return parts.output(outputs, video)

    @staticmethod
    def _encode(layer: nn.Module, video: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        query = video + positions
        mixed, _ = layer.self_attn(
            query, query, video, key_padding_mask=batch.video_pad, need_weights=False
        )
        video = layer.norm1(video + layer.dropout1(mixed))
        inner = layer.dropout(F.relu(layer.linear1(video)))
        outer = layer.linear2(inner)
        return layer.norm2(video + layer.dropout2(outer))

    @staticmethod
    def _decode(
        layer: nn.Module,
        text: Tensor,
        order: Tensor,
        video: Tensor,
        positions: Tensor,
        batch: Batch,
    ) -> Tensor:
        # from text to text
        query = text + order
        mixed, _ = layer.self_attn(
            query, query, text, key_padding_mask=batch.text_pad, need_weights=False
        )
        text = layer.norm1(text + layer.dropout1(mixed))
        # from text to video
        query = text + order
        key = video + positions
        mixed, _ = layer.multihead_attn(
            query, key, video, key_padding_mask=batch.video_pad, need_weights=False
        )
        text = layer.norm2(text + layer.dropout2(mixed))
        inner = layer.dropout(F.relu(layer.linear1(text)))
        outer = layer.linear2(inner)
        return layer.norm3(text + layer.dropout3(outer))

    def _scaled(self, rows: Tensor) -> Tensor:
        if not self.scale:
            return rows
        variance = rows.square().mean(-1, keepdim=True)
        return rows * variance.clamp(min=1e-12).rsqrt()

    @classmethod
    def of(cls, model: Aligner) -> "EqualAligner":
        """Return one with the weights of a network of ours."""
        weights = {}
        for key, value in model.state_dict().items():
            weights[f"parts.{torch_name(key)}"] = value
        equal = cls(model.settings)
        equal.load_state_dict(weights)
        return equal


# A name of ours -> PyTorch's, in the order in which they are replaced.
TORCH_NAMES = {
    "decoder_norm": "decoder.norm",
    "cross_attention.project.": "multihead_attn.in_proj_",
    "self_att": "att",
    "cross_attention.out": "multihead_attn.out_proj",
    "attention.project.": "self_attn.in_proj_",
    "attention.out": "self_attn.out_proj",
    "attention_norm": "norm1",
    "self_norm": "norm1",
    "cross_norm": "norm2",
    "feed.wide": "linear1",
    "feed.narrow": "linear2",
}


def torch_name(key: str) -> str:
    """Return the name that PyTorch's layers have for a weight of ours."""
    last_norm = "norm2" if key.startswith("encoder") else "norm3"
    name = key.replace("feed_norm", last_norm)
    for ours, theirs in TORCH_NAMES.items():
        name = name.replace(ours, theirs)
    for part in ("encoder.", "decoder."):
        number = name.removeprefix(part)
        if name.startswith(part) and number[0].isdigit():
            name = f"{part}layers.{number}"
    return name


def plain_loss(aligned: AlignerOutput, batch: Batch, temperature: float = 0.07) -> Tensor:
    """Return the released loss as its formula reads.

    Rivals are from the whole batch. It is of every decoder layer and all rows.
    """
    layers, size, texts = aligned.text.shape[:3]
    seconds = aligned.video.shape[1]
    is_real = ~batch.video_pad[:, None] & ~batch.text_pad[:, :, None]
    truth = batch.positive & is_real  # (B, K, T)
    positive = torch.zeros(size, texts, size, seconds, dtype=torch.bool, device=truth.device)
    for number in range(size):
        positive[number, :, number] = truth[number]
    positive = positive.view(size * texts, size * seconds)  # (B K, B T)
    has_positive = positive.any(dim=1)
    video = aligned.video.flatten(0, 1)  # (B T, d)
    total = aligned.text.new_zeros(())
    for text in aligned.text:
        logits = text.flatten(0, 1) @ video.T / temperature  # (B K, B T)
        logits = logits.masked_fill(batch.video_pad.flatten(), -1e4)
        positive_logits = logits.masked_fill(~positive, -1e4)
        losses = logits.logsumexp(dim=1) - positive_logits.logsumexp(dim=1)  # (B K,)
        total = total + losses[has_positive].sum()
    return total / layers / (size * texts)
