"""InternVideo-MM's two towers, with the weight names of its checkpoint.

They map clips of 8 frames and texts to one space. Letters: B clips, T frames, G patches per side, L
patches of a frame and its class token, D width, K texts, N tokens.
Sources: Wang et al. 2022 (InternVideo), Li et al. 2022 (UniFormerV2, whose global blocks the video
tower has), Radford et al. 2021 (CLIP).
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stepline.errors import ModelError

HEAD_WIDTH = 64  # width of an attention head, in both towers
MLP_FACTOR = 4  # hidden width of an MLP, in widths of its input


@dataclass(frozen=True)
class NetworkSizes:
    """Layer sizes of an InternVideo-MM checkpoint.

    Attributes:
        width: width of the video encoder.
        patch: pixels per side of a patch.
        grid: patches per side of a frame.
        layers: number of transformer blocks of the video encoder.
        global_blocks: number of global blocks, one after each of the last transformer blocks.
        text_width: width of the text encoder.
        text_layers: number of transformer blocks of the text encoder.
        max_tokens: maximal number of tokens per text.
        vocabulary: number of different tokens.
        joint_width: width of the space shared by clips and texts.
    """

    width: int
    patch: int
    grid: int
    layers: int
    global_blocks: int
    text_width: int
    text_layers: int
    max_tokens: int
    vocabulary: int
    joint_width: int

    @property
    def side(self) -> int:
        """Pixels per side of a frame."""
        return self.grid * self.patch


def network_sizes(shapes: Mapping[str, tuple[int, ...]]) -> NetworkSizes:
    """Return the layer sizes that the shapes of a checkpoint's weights imply.

    shapes: weight name -> shape.

    Raises ModelError for weights of another network.
    """
    try:
        width, _, _, patch, _ = shapes["visual.conv1.weight"]
        position_count, _ = shapes["visual.positional_embedding"]
        max_tokens, text_width = shapes["positional_embedding"]
        vocabulary, _ = shapes["token_embedding.weight"]
        _, joint = shapes["text_projection"]
    except (KeyError, ValueError) as error:
        raise ModelError(f"no weights of InternVideo-MM ({error})") from error
    # A position per patch, and one of the class token.
    grid = round((position_count - 1) ** 0.5)
    sizes = NetworkSizes(
        width=width,
        patch=patch,
        grid=grid,
        layers=_count_modules(shapes, "visual.transformer.resblocks"),
        global_blocks=_count_modules(shapes, "visual.transformer.dec"),
        text_width=text_width,
        text_layers=_count_modules(shapes, "transformer.resblocks"),
        max_tokens=max_tokens,
        vocabulary=vocabulary,
        joint_width=joint,
    )
    # The patches are a square, and heads divide both widths.
    fits = grid * grid == position_count - 1 and 0 < sizes.global_blocks <= sizes.layers
    if not fits or width % HEAD_WIDTH or text_width % HEAD_WIDTH:
        raise ModelError(f"weights of another network than InternVideo-MM ({sizes})")
    return sizes


def _count_modules(shapes: Mapping[str, tuple[int, ...]], prefix: str) -> int:
    """Return the number of modules in a list, whose weights are named `prefix`.NUMBER.NAME.

    Args:
        shapes: weight name -> shape.
        prefix: name of the list.
    """
    start = f"{prefix}."
    names = [name.removeprefix(start) for name in shapes if name.startswith(start)]
    return len({name.partition(".")[0] for name in names})


class QuickGELU(nn.Module):  # type: ignore[misc]
    """CLIP's activation function x sigmoid(1.702 x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations of x, in the shape of x."""
        return x * torch.sigmoid(1.702 * x)


class ResidualBlock(nn.Module):  # type: ignore[misc]
    """Transformer block: self-attention and MLP, each after a LayerNorm, with residuals."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, width // HEAD_WIDTH, batch_first=True)
        self.ln_1 = nn.LayerNorm(width)
        layers = OrderedDict(
            c_fc=nn.Linear(width, MLP_FACTOR * width),
            gelu=QuickGELU(),
            c_proj=nn.Linear(MLP_FACTOR * width, width),
        )
        self.mlp = nn.Sequential(layers)
        self.ln_2 = nn.LayerNorm(width)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the output (B, L, D) for tokens x (B, L, D): B sequences of L tokens of width D.

        Args:
            x: the tokens.
            memory: (B, M, D), normalised tokens to attend to. None: x itself.
            mask: (L, L), added to the attention scores. None for no mask.
        """
        normalised = self.ln_1(x)
        if memory is None:
            memory = normalised
        attended, _ = self.attn(normalised, memory, memory, need_weights=False, attn_mask=mask)
        x = x + attended
        return x + self.mlp(self.ln_2(x))


class GlobalBlock(ResidualBlock):
    """Block that pools a clip: one query attends to all patches of all frames, then an MLP.

    The patches are normalised by `ln_3` and given as the block's memory.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.ln_3 = nn.LayerNorm(width)


class VideoBlocks(nn.Module):  # type: ignore[misc]
    """CLIP's transformer blocks, applied to each frame, and global blocks that pool the clip."""

    def __init__(self, sizes: NetworkSizes) -> None:
        super().__init__()
        width = sizes.width
        self.grid = sizes.grid
        self.resblocks = nn.ModuleList(ResidualBlock(width) for _ in range(sizes.layers))
        self.temporal_cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.dpe = nn.ModuleList(
            nn.Conv3d(width, width, 3, padding=1, groups=width) for _ in range(sizes.global_blocks)
        )
        self.dec = nn.ModuleList(GlobalBlock(width) for _ in range(sizes.global_blocks))
        self.balance = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return one vector per clip, (B, D).

        x: (B, T, L, D), the class token and patches of each of T frames, L tokens of width D.
        """
        b, _, _, d = x.shape
        query = self.temporal_cls_token.expand(b, 1, d)  # (B, 1, D)
        # Each of the last blocks has a global block of its own.
        first = len(self.resblocks) - len(self.dec)
        for number, block in enumerate(self.resblocks):
            x = block(x.flatten(0, 1)).view(x.shape)  # (B, T, L, D)
            readout = number - first
            if readout >= 0:
                patches = self._with_positions(x, self.dpe[readout])  # (B, T, L, D)
                pool = self.dec[readout]
                query = pool(query, pool.ln_3(patches.flatten(1, 2)))
        # a learned balance of the pooled clip and the mean class token
        weight = torch.sigmoid(self.balance)
        classes = x[:, :, 0].mean(1)  # (B, D)
        return (1 - weight) * query[:, 0] + weight * classes

    def _with_positions(self, x: Tensor, convolution: nn.Module) -> Tensor:
        """Return x (B, T, L, D) with position information added to its patches.

        convolution: convolution over time and space that computes it.
        """
        # The class token has no position in the frame.
        classes = x[:, :, :1]
        patches = x[:, :, 1:]  # (B, T, G G, D)
        channels_first = patches.permute(0, 3, 1, 2)  # (B, D, T, G G)
        volume = channels_first.unflatten(3, (self.grid, self.grid))
        positions = convolution(volume).flatten(3)  # (B, D, T, G G)
        return torch.cat([classes, patches + positions.permute(0, 2, 3, 1)], dim=2)


class VideoTower(nn.Module):  # type: ignore[misc]
    """Video encoder: patch and position embeddings, then transformer blocks."""

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
        """Return one vector per clip, (B, D), for clips (B, 3, T, side, side) of T RGB frames."""
        patches = self.conv1(clips).flatten(3)  # (B, D, T, G G)
        x = patches.permute(0, 2, 3, 1)  # (B, T, G G, D)
        b, t, _, d = x.shape
        classes = self.class_embedding.expand(b, t, 1, d)
        x = torch.cat([classes, x], dim=2)  # (B, T, L, D)
        x = self.ln_pre(x + self.positional_embedding)
        return self.transformer(x)


class TextBlocks(nn.Module):  # type: ignore[misc]
    """CLIP's text transformer blocks, with causal attention."""

    def __init__(self, sizes: NetworkSizes) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(
            ResidualBlock(sizes.text_width) for _ in range(sizes.text_layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the output (K, N, D) for tokens x (K, N, D): K texts, N tokens, width D."""
        length = x.shape[1]
        # A token attends to itself and those before it.
        mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        for block in self.resblocks:
            x = block(x, mask=mask)
        return x


class InternVideoNetwork(nn.Module):  # type: ignore[misc]
    """Video and text encoder of InternVideo-MM.

    Weights have the names of the checkpoint without the prefix `clip.`.
    """

    def __init__(self, sizes: NetworkSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.visual = VideoTower(sizes)
        self.visual_ln_post = nn.LayerNorm(sizes.width)
        self.visual_proj = nn.Parameter(torch.zeros(sizes.width, sizes.joint_width))
        text_width = sizes.text_width
        self.transformer = TextBlocks(sizes)
        self.token_embedding = nn.Embedding(sizes.vocabulary, text_width)
        self.positional_embedding = nn.Parameter(torch.zeros(sizes.max_tokens, text_width))
        self.ln_final = nn.LayerNorm(text_width)
        self.text_projection = nn.Parameter(torch.zeros(text_width, sizes.joint_width))

    def encode_clips(self, clips: Tensor) -> Tensor:
        """Return the vectors (B, joint) of B clips, not normalised.

        clips: (B, 3, T, side, side), T RGB frames normalised by CLIP's mean and standard deviation.
        """
        return self.visual_ln_post(self.visual(clips)) @ self.visual_proj

    def encode_texts(self, tokens: Tensor) -> Tensor:
        """Return the vectors (K, joint) of K texts, not normalised.

        tokens: (K, N) token numbers. The output at the end token, which has the highest number,
        counts.
        """
        x = self.token_embedding(tokens) + self.positional_embedding  # (K, N, D)
        x = self.transformer(x)
        x = self.ln_final(x)
        rows = torch.arange(len(x), device=x.device)
        return x[rows, tokens.argmax(1)] @ self.text_projection
