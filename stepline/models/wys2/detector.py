"""The detector of visual narrations: a tower for clips, one for texts, and the score of the two.
Also its losses, and its file.

    score = f_V(clip) . f_T(text)                            a dot product, a cosine over temperature, or a joint head
    NCE = -log(exp(own) / sum over own and negatives)        WYS2, section 3.2; MIL-NCE in its correct and released form

The file is safetensors with the settings and the names of the features that the detector was
trained on. Attributes that are modules are keys of its weights, so their names stay. Source: WYS2,
section 3.2, and Miech et al. 2020 (MIL-NCE). Letters: B clips, R feature rows, C width of a row, P
candidate texts of a clip, M texts. D is the width of the space shared by clips and texts. scores
(B, B, P): of clip i with candidate p of clip j, -inf on padding.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.models.training.loop import Loss
from stepline.models.training.network import FeatureSpace, Header, NetworkFileFormat, parse_settings
from stepline.models.wys2.clips import ClipTextBatch, ClipTextPair, collate_pairs
from stepline.models.wys2.settings import ContrastSettings, DetectorSettings
from stepline.networks.device import current_device, device_of
from stepline.records import Matrix

PAIRS_PER_BATCH = 512  # that are scored together
FRAME_CLIPS_PER_BATCH = 8  # of clips of frames, 5 MB each


class Detector(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Network that scores how likely a clip shows what a text says. Higher scores are more likely.

    settings: sizes and forms of the network.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        super().__init__()
        self.settings = settings
        # D: that of the texts where they are taken as they are
        frozen = settings.text == "frozen"
        width = settings.text_width if frozen else settings.width
        self.text = nn.Identity() if frozen else _make_head(settings.text_width, settings, width)
        # What sees the clip: frames, or ready features.
        of_frames = settings.video == "s3d"
        self.video = S3DTower(width) if of_frames else FeatureTower(settings, width)
        # How the two are compared: by a dot product, or by a joint head.
        is_joint = settings.score == "joint"
        self.joint = JointScore(width, settings.hidden) if is_joint else None

    def forward(self, batch: ClipTextBatch) -> Tensor:
        """Return scores (B, B, P) of clip i with candidate text p of clip j. Padded texts have
        -inf."""
        # Each clip with each text of the batch, so that the others are its negatives.
        b, p, _ = batch.text.shape
        texts = self.encode_texts(batch.text.flatten(0, 1))  # (B P, D)
        clips = self.encode_clips(batch)  # (B, D)
        scores = self.compare(clips, texts).view(b, b, p)
        return scores.masked_fill(batch.text_pad[None], -torch.inf)

    def score_matched_pairs(self, batch: ClipTextBatch) -> Tensor:
        """Return the score of each clip with the first of its candidate texts, (B,)."""
        clips = self.encode_clips(batch)  # (B, D)
        texts = self.encode_texts(batch.text[:, 0])  # (B, D)
        # A joint head takes both vectors as they are.
        if self.joint is not None:
            scores = self.joint(clips[:, None], texts[:, None])  # (B, 1, 1)
            return cast(Tensor, scores[:, 0, 0])
        clips, texts = self._normalize_for_score(clips, texts)
        return torch.einsum("bd,bd->b", clips.float(), texts.float())

    def encode_clips(self, batch: ClipTextBatch) -> Tensor:
        """Return unnormalised vectors of the clips of a batch, (B, D). Raises ShapeError for frames if
        the detector takes feature rows, and the other way around."""
        tower = self.settings.video
        takes_frames = tower == "s3d"
        if takes_frames != (batch.video_pad is None):
            form = "frames" if takes_frames else "feature rows"
            raise ShapeError(f"this detector takes clips as {form}; detector.video={tower} says so")
        return cast(Tensor, self.video(batch))

    def encode_texts(self, texts: Tensor) -> Tensor:
        """Return unnormalised vectors of M texts, (M, D).

        texts: (M, E) vectors from the text encoder, of width `text_width`.

        Raises ShapeError for vectors of another width.
        """
        width = texts.shape[-1]
        expected = self.settings.text_width
        if width != expected:
            raise ShapeError(f"texts are {width} wide, the detector takes {expected}")
        return cast(Tensor, self.text(texts))

    def compare(self, clips: Tensor, texts: Tensor) -> Tensor:
        """Return the scores (B, M) of each clip with each text.

        Args:
            clips: (B, D) clip vectors of the detector.
            texts: (M, D) text vectors of the detector.
        """
        if self.joint is not None:
            scores = self.joint(clips[:, None], texts[None])  # (B, M, 1)
            return cast(Tensor, scores[..., 0])
        clips, texts = self._normalize_for_score(clips, texts)
        return clips @ texts.T

    def _normalize_for_score(self, clips: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Return clip vectors (B, D) and text vectors (M, D) whose dot products are the scores.

        With `settings.score` "cosine" they are unit vectors, and those of the clips are divided by
        the temperature. With "dot" they are unchanged.
        """
        if self.settings.score == "dot":
            return clips, texts
        # A cosine over the temperature.
        unit_clips = F.normalize(clips, dim=-1)
        return unit_clips / self.settings.temperature, F.normalize(texts, dim=-1)


class FeatureTower(nn.Module):  # type: ignore[misc]
    """Clip encoder for precomputed features: the mean of a clip's rows, followed by two layers."""

    def __init__(self, settings: DetectorSettings, width: int) -> None:
        super().__init__()
        self.width = settings.video_width
        self.head = _make_head(self.width, settings, width)

    def forward(self, batch: ClipTextBatch) -> Tensor:
        """Return the vectors of the clips of a batch, (B, D)."""
        video = batch.video
        width = video.shape[2]
        if width != self.width or batch.video_pad is None:
            raise ShapeError(f"feature rows are {width} wide, the detector takes {self.width}")
        # The mean over the real rows.
        is_real = (~batch.video_pad).to(video.dtype)  # (B, R)
        sums = torch.einsum("brc,br->bc", video, is_real)  # (B, C)
        return cast(Tensor, self.head(sums / is_real.sum(1, keepdim=True)))


class S3DTower(nn.Module):  # type: ignore[misc]
    """Clip encoder for frames: S3D, trained end to end. Released weights can be loaded into `s3d`
    before training."""

    def __init__(self, width: int) -> None:
        from stepline.vision.s3d_network import JOINT_WIDTH, S3D

        super().__init__()
        self.s3d = S3D()
        same_width = width == JOINT_WIDTH
        self.project = nn.Identity() if same_width else nn.Linear(JOINT_WIDTH, width)

    def forward(self, batch: ClipTextBatch) -> Tensor:
        """Return the vectors of the clips of a batch, (B, D)."""
        clips = (batch.video.float() / 255).permute(0, 4, 1, 2, 3)  # (B, 3, T, H, W)
        return cast(Tensor, self.project(self.s3d(clips)))


class JointScore(nn.Module):  # type: ignore[misc]
    """Score of a clip and a text vector by a two-layer network, like TAN's alignability head."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.clip = nn.Linear(width, hidden)
        self.text = nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, clips: Tensor, texts: Tensor) -> Tensor:
        """Return the scores (..., 1).

        Args:
            clips: (..., D) clip vectors.
            texts: (..., D) text vectors. Leading dimensions of both arguments broadcast.
        """
        hidden = torch.relu(self.clip(clips) + self.text(texts))
        return cast(Tensor, self.out(hidden))


def _make_head(inputs: int, settings: DetectorSettings, width: int) -> nn.Module:
    """Return a network of two layers after a LayerNorm without parameters. Without the norm, the
    values of unit rows are too small against the bias of the first layer.

    Args:
        inputs: width of the input vectors.
        settings: hidden width and dropout.
        width: width of the output vectors.
    """
    return nn.Sequential(
        nn.LayerNorm(inputs, elementwise_affine=False),
        nn.Linear(inputs, settings.hidden),
        nn.ReLU(),
        nn.Dropout(settings.dropout),
        nn.Linear(settings.hidden, width),
    )


def contrastive_loss(scores: Tensor, settings: ContrastSettings) -> Loss:
    """Return the contrastive loss that `settings.objective` selects, summed over clips.

    Args:
        scores: (B, B, P) score of clip i with candidate text p of clip j.
        settings: form of the loss.

    Raises ShapeError for scores of another shape, and with "nce" for a batch of one clip, which has
    no negatives.
    """
    shape = tuple(scores.shape)
    if len(shape) != 3 or shape[0] != shape[1]:
        raise ShapeError(f"scores must be (B, B, P), not {shape}")
    if settings.objective == "nce":
        return nce_loss(scores[:, :, 0], settings)
    return mil_nce_loss(scores, released=settings.objective == "mil-nce-released")


def nce_loss(scores: Tensor, settings: ContrastSettings) -> Loss:
    """Return the NCE loss of each clip's text against negatives sampled from the batch's other
    texts, summed over clips (WYS2, section 3.2).

    Args:
        scores: (B, B) score of clip i with text j.
        settings: `negatives` is their number. They are drawn with torch's random generator.
    """
    own = scores.diagonal()  # (B,)
    candidates = torch.cat([own[:, None], _sample_negatives(scores, settings.negatives)], dim=1)
    losses = candidates.logsumexp(1) - own  # (B,)
    return Loss(losses.sum(), scores.new_full((), len(own)))


def mil_nce_loss(scores: Tensor, *, released: bool) -> Loss:
    """Return the MIL-NCE loss, summed over clips. Negatives are the other texts for the clip and
    the other clips for its texts.

    Args:
        scores: (B, B, P) score of clip i with candidate text p of clip j.
        released: True: the matching pairs count twice in the denominator, as in the published code.
            The least possible loss is then log 2. False: they count once.

    Source: Miech et al. 2020, equation 1.
    """
    b = len(scores)
    row = torch.arange(b, device=scores.device)
    own = scores[row, row]  # (B, P)
    by_text = scores.transpose(0, 1)  # (B, B, P)
    if not released:
        # The clip's own candidates count once, among its texts.
        diagonal = torch.eye(b, dtype=torch.bool, device=scores.device)
        by_text = by_text.masked_fill(diagonal[:, :, None], -torch.inf)
    candidates = torch.cat([scores.flatten(1), by_text.flatten(1)], dim=1)  # (B, 2 B P)
    losses = candidates.logsumexp(1) - own.logsumexp(1)  # (B,)
    return Loss(losses.sum(), scores.new_full((), b))


def _sample_negatives(scores: Tensor, count: int | None) -> Tensor:
    """Return randomly chosen scores of each clip with texts of other clips, (B, min(count, B - 1)).

    Args:
        scores: (B, B) score of clip i with text j.
        count: number of scores per clip. None: all B - 1.

    Raises ShapeError for a batch of one clip.
    """
    b = len(scores)
    if b < 2:
        raise ShapeError(
            "a batch of one clip holds no rival; raise train.batch, or give more clips"
        )
    priorities = torch.rand(b, b, device=scores.device)
    priorities.fill_diagonal_(2.0)  # the diagonal comes last
    others = b - 1 if count is None else min(b - 1, count)
    return scores.gather(1, priorities.argsort(1)[:, :others])


def max_clips_per_batch(network: Detector) -> int:
    """Return the number of clips scored in one batch. It is smaller for clips of frames, which take
    more memory."""
    return FRAME_CLIPS_PER_BATCH if network.settings.video == "s3d" else PAIRS_PER_BATCH


def score_pairs(
    network: Detector, pairs: Sequence[ClipTextPair], *, at_once: int = PAIRS_PER_BATCH
) -> Matrix:
    """Return the score of each of N clips with its first text, (N,).

    Args:
        network: the detector.
        pairs: clips with their texts.
        at_once: largest number of clips per batch. It does not change scores.
    """
    device = device_of(network)
    network.eval()
    at_once = min(at_once, max_clips_per_batch(network))
    scores: list[Matrix] = [np.empty(0, dtype=np.float32)]
    with torch.inference_mode(), current_device().autocast():
        for first in range(0, len(pairs), at_once):
            batch = collate_pairs(pairs[first : first + at_once]).to(device)
            scores.append(network.score_matched_pairs(batch).float().cpu().numpy())
    return np.concatenate(scores)


SettingsAndSpace = tuple[DetectorSettings, FeatureSpace]


def _parse(header: Header) -> SettingsAndSpace:
    settings = parse_settings(DetectorSettings, header["settings"])
    return settings, FeatureSpace(str(header.get("video", "")), str(header.get("text", "")), None)


NETWORK = NetworkFileFormat[SettingsAndSpace, Detector](
    kind="stepline.wys2.detector",
    version=1,
    title="a WYS2 detector",
    command="`stepline train wys2`",
    file_names=("detector.safetensors",),
    parse=_parse,
    build=lambda header: Detector(header[0]),
)


def write_detector(detector: Detector, path: Path, *, video: str = "", text: str = "") -> None:
    """Write a detector to a file.

    Args:
        detector: the network.
        path: file to write.
        video: name of the feature extractor of its clips. "": unknown.
        text: name of the encoder of its text vectors. "": unknown.
    """
    NETWORK.write(path, detector, {"video": video, "text": text})


def read_detector(path: Path) -> tuple[FeatureSpace, Detector]:
    """Return the feature space and the detector of a file, in evaluation mode. Raises ModelError
    for a file that is not a detector."""
    (_, space), detector = NETWORK.load(path)
    return space, detector
