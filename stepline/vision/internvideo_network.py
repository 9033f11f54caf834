"""InternVideo-MM's two towers: clips of 8 pictures and texts in one space, as their checkpoint
names its weights.

Letters: B clips, T pictures, L patches of a picture and its class token, D width, K texts, N
tokens. Sources: Wang et al. 2022 (InternVideo), Li et al. 2022 (UniFormerV2, whose global blocks
the video tower has), Radford et al. 2021 (CLIP).
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepline.errors import ModelError

HEAD_WIDTH = 64  # numbers a head of attention, in both towers
MLP_FACTOR = 4  # hidden numbers per number of width


@dataclass(frozen=True)
class NetworkSizes:
    """Layer sizes of a checkpoint.

    grid: patches per side
    patch: pixels per side of one
    layers: blocks of the video tower
    readouts: global blocks, one after each of the last layers
    words: tokens that are known
    """

    width: int
    patch: int
    grid: int
    layers: int
    readouts: int
    text_width: int
    text_layers: int
    max_tokens: int
    words: int
    joint: int

    @property
    def side(self) -> int:
        """Pixels a side of a picture."""
        return self.grid * self.patch


def network_sizes(shapes: Mapping[str, tuple[int, ...]]) -> NetworkSizes:
    """Return the sizes that the weights' shapes say. Raises ModelError for those of another
    network."""
    try:
        width, _, _, patch, _ = shapes["visual.conv1.weight"]
        places, _ = shapes["visual.positional_embedding"]
        max_tokens, text_width = shapes["positional_embedding"]
        words, _ = shapes["token_embedding.weight"]
        _, joint = shapes["text_projection"]
    except (KeyError, ValueError) as error:
        raise ModelError(f"no weights of InternVideo-MM ({error})") from error
    # A position per patch, and one of the class token.
    grid = round((places - 1) ** 0.5)
    sizes = NetworkSizes(
        width=width,
        patch=patch,
        grid=grid,
        layers=_count(shapes, "visual.transformer.resblocks"),
        readouts=_count(shapes, "visual.transformer.dec"),
        text_width=text_width,
        text_layers=_count(shapes, "transformer.resblocks"),
        max_tokens=max_tokens,
        words=words,
        joint=joint,
    )
    # The patches are a square, and heads divide both widths.
    fits = grid * grid == places - 1 and 0 < sizes.readouts <= sizes.layers
    if not fits or width % HEAD_WIDTH or text_width % HEAD_WIDTH:
        raise ModelError(f"weights of another network than InternVideo-MM ({sizes})")
    return sizes


def _count(shapes: Mapping[str, tuple[int, ...]], prefix: str) -> int:
    """Return how many numbered parts a list of modules has."""
    start = f"{prefix}."
    numbers = set()
    for name in shapes:
        if name.startswith(start):
            number, _, _ = name.removeprefix(start).partition(".")
            numbers.add(number)
    return len(numbers)


class QuickGELU(nn.Module):  # type: ignore[misc]
    """x sigmoid(1.702 x), CLIP's activation."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the same shape."""
        return x * torch.sigmoid(1.702 * x)


def _mlp(width: int) -> nn.Sequential:
    layers = OrderedDict(
        c_fc=nn.Linear(width, MLP_FACTOR * width),
        gelu=QuickGELU(),
        c_proj=nn.Linear(MLP_FACTOR * width, width),
    )
    return nn.Sequential(layers)


class ResidualBlock(nn.Module):  # type: ignore[misc]
    """Self-attention and MLP, each behind a LayerNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, width // HEAD_WIDTH, batch_first=True)
        self.ln_1 = nn.LayerNorm(width)
        self.mlp = _mlp(width)
        self.ln_2 = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (B, L, D). mask: (L, L), added to the scores of attention."""
        normalised = self.ln_1(x)
        attended, _ = self.attn(
            normalised, normalised, normalised, need_weights=False, attn_mask=mask
        )
        x = x + attended
        normalised = self.ln_2(x)
        return x + self.mlp(normalised)


class GlobalBlock(nn.Module):  # type: ignore[misc]
    """One query that attends to every patch of every picture of a clip."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, width // HEAD_WIDTH, batch_first=True)
        self.ln_1 = nn.LayerNorm(width)
        self.mlp = _mlp(width)
        self.ln_2 = nn.LayerNorm(width)
        self.ln_3 = nn.LayerNorm(width)

    def forward(self, query: Tensor, patches: Tensor) -> Tensor:
        """Return (B, 1, D) for query (B, 1, D) and patches (B, T L, D)."""
        memory = self.ln_3(patches)
        normalised = self.ln_1(query)
        attended, _ = self.attn(normalised, memory, memory, need_weights=False)
        query = query + attended
        normalised = self.ln_2(query)
        return query + self.mlp(normalised)


class VideoBlocks(nn.Module):  # type: ignore[misc]
    """Pictures through CLIP's blocks one by one. After each of the last, the clip is read out
    whole."""

    def __init__(self, sizes: NetworkSizes) -> None:
        super().__init__()
        width = sizes.width
        self.grid = sizes.grid
        self.resblocks = nn.ModuleList()
        for _ in range(sizes.layers):
            self.resblocks.append(ResidualBlock(width))
        self.temporal_cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.dpe = nn.ModuleList()
        self.dec = nn.ModuleList()
        for _ in range(sizes.readouts):
            self.dpe.append(nn.Conv3d(width, width, 3, padding=1, groups=width))
        for _ in range(sizes.readouts):
            self.dec.append(GlobalBlock(width))
        self.balance = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, D) for x (B, T, L, D)."""
        b, _, _, d = x.shape
        query = self.temporal_cls_token.expand(b, 1, d)  # (B, 1, D)
        # The last blocks are read out, each by a global block of its own.
        first = len(self.resblocks) - len(self.dec)
        for number, block in enumerate(self.resblocks):
            pictures = block(x.flatten(0, 1))  # (B T, L, D)
            x = pictures.view(x.shape)
            readout = number - first
            if readout >= 0:
                patches = self._with_positions(x, self.dpe[readout])  # (B, T, L, D)
                query = self.dec[readout](query, patches.flatten(1, 2))
        # A learned balance of what was read out and of the mean class token.
        weight = torch.sigmoid(self.balance)
        classes = x[:, :, 0].mean(1)  # (B, D)
        return (1 - weight) * query[:, 0] + weight * classes

    def _with_positions(self, x: Tensor, convolution: nn.Module) -> Tensor:
        """Return x with a convolution over time and place added to its patches."""
        # The class token has no place in the picture.
        classes = x[:, :, :1]
        patches = x[:, :, 1:]  # (B, T, G G, D)
        channels_first = patches.permute(0, 3, 1, 2)  # (B, D, T, G G)
        volume = channels_first.unflatten(3, (self.grid, self.grid))
        places = convolution(volume).flatten(3)  # (B, D, T, G G)
        places = places.permute(0, 2, 3, 1)  # (B, T, G G, D)
        return torch.cat([classes, patches + places], dim=2)


class VideoTower(nn.Module):  # type: ignore[misc]
    """Video encoder: patch and position embeddings, then the blocks."""

    def __init__(self, sizes: NetworkSizes) -> None:
        super().__init__()
        width = sizes.width
        size = (1, sizes.patch, sizes.patch)
        self.conv1 = nn.Conv3d(3, width, size, stride=size, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(width))
        self.positional_embedding = nn.Parameter(torch.zeros(sizes.grid**2 + 1, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = VideoBlocks(sizes)

    def forward(self, clips: Tensor) -> Tensor:
        """Return (B, D) for clips (B, 3, T, side, side)."""
        patches = self.conv1(clips).flatten(3)  # (B, D, T, G G)
        x = patches.permute(0, 2, 3, 1)  # (B, T, G G, D)
        b, t, _, d = x.shape
        classes = self.class_embedding.expand(b, t, 1, d)
        x = torch.cat([classes, x], dim=2)  # (B, T, L, D)
        x = self.ln_pre(x + self.positional_embedding)
        return self.transformer(x)


class TextBlocks(nn.Module):  # type: ignore[misc]
    """CLIP's text blocks with causal attention."""

    def __init__(self, sizes: NetworkSizes) -> None:
        super().__init__()
        blocks = (ResidualBlock(sizes.text_width) for _ in range(sizes.text_layers))
        self.resblocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Return (K, N, D) for x (K, N, D)."""
        length = x.shape[1]
        # A token sees itself and those before it.
        all_tokens = torch.full((length, length), float("-inf"), device=x.device)
        mask = all_tokens.triu(1)
        for block in self.resblocks:
            x = block(x, mask)
        return x


class InternVideoNetwork(nn.Module):  # type: ignore[misc]
    """Video and text encoders of InternVideo. Names of the weights are those of the checkpoint, without its `clip.`."""

    def __init__(self, sizes: NetworkSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.visual = VideoTower(sizes)
        self.visual_ln_post = nn.LayerNorm(sizes.width)
        self.visual_proj = nn.Parameter(torch.zeros(sizes.width, sizes.joint))
        text_width = sizes.text_width
        self.transformer = TextBlocks(sizes)
        self.token_embedding = nn.Embedding(sizes.words, text_width)
        self.positional_embedding = nn.Parameter(torch.zeros(sizes.max_tokens, text_width))
        self.ln_final = nn.LayerNorm(text_width)
        self.text_projection = nn.Parameter(torch.zeros(text_width, sizes.joint))

    def encode_clips(self, clips: Tensor) -> Tensor:
        """Return (B, joint), lengths as they come, for clips (B, 3, T, side, side) of CLIP's mean
        and spread."""
        return self.visual_ln_post(self.visual(clips)) @ self.visual_proj

    def encode_texts(self, tokens: Tensor) -> Tensor:
        """Return (K, joint) for tokens (K, N), read at the last token, whose number is the
        highest."""
        x = self.token_embedding(tokens) + self.positional_embedding  # (K, N, D)
        x = self.transformer(x)
        x = self.ln_final(x)
        rows = torch.arange(len(x), device=x.device)
        ends = tokens.argmax(1)
        last = x[rows, ends]  # (K, D)
        return last @ self.text_projection
