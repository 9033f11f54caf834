"""The detector of visual narrations: a tower for clips, one for texts, and how alike they are. Also
its losses, and its file.

    score = f_V(clip) . f_T(text)                            a dot product, a cosine over temperature, or a joint head
    NCE = -log(exp(own) / sum over own and negatives)        WYS2, section 3.2; MIL-NCE in its correct and released form

The file is safetensors that carries its settings and says which features it was trained on.
Attributes that are modules are keys of its weights, so their names stay.
Source: WYS2, section 3.2, and Miech et al. 2020 (MIL-NCE).
Letters: B clips, R feature rows, C width of a row, P candidate texts of a clip, M texts. D is the
width of the space shared by clips and texts.
scores (B, B, P): of clip i with candidate p of clip j, -inf on padding.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.errors import ShapeError
from stepline.models.training.loop import Loss
from stepline.models.training.network_file import Header, NetworkFile
from stepline.models.wys2.clips import ClipTextBatch, ClipTextPair, collate_pairs
from stepline.models.wys2.settings import ContrastSettings, DetectorSettings
from stepline.networks.device import current_device, device_of
from stepline.records import Matrix

DETECTOR_FILE = "detector.safetensors"  # in the folder of a training run
NETWORK_FILE = NetworkFile(
    kind="stepline.wys2.detector",
    version=1,
    title="a WYS2 detector",
    writer="`stepline train wys2`",
    names=(DETECTOR_FILE,),
)
PAIRS_PER_BATCH = 512  # that are scored together
FRAME_CLIPS_PER_BATCH = 8  # of clips of frames, 5 MB each


class Detector(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Scores every clip of a batch with every text. A higher score means that the clip is more
    likely to show what the text says."""

    def __init__(self, settings: DetectorSettings) -> None:
        super().__init__()
        self.settings = settings
        # D: that of the texts where they are taken as they are
        width = settings.width
        self.text: nn.Module = nn.Identity()
        if settings.text == "frozen":
            width = settings.text_width
        else:
            text_width = settings.text_width
            self.text = _head(text_width, settings, width)
        # What sees the clip: frames, or ready features.
        self.video: nn.Module
        if settings.video == "s3d":
            self.video = S3DTower(width)
        else:
            self.video = FeatureTower(settings, width)
        # How the two are compared: by a dot product, or by a joint head.
        self.joint: JointScore | None = None
        if settings.score == "joint":
            self.joint = JointScore(width, settings.hidden)

    def forward(self, batch: ClipTextBatch) -> Tensor:
        """Return scores (B, B, P): of clip i with candidate p of clip j, and -inf for candidates
        that are padding."""
        # Each clip with each text of the batch, so that the others are its negatives.
        b, p, _ = batch.text.shape
        candidates = batch.text.flatten(0, 1)  # (B P, E)
        texts = self.encode_texts(candidates)  # (B P, D)
        clips = self.encode_clips(batch)  # (B, D)
        scores = self.compare(clips, texts)  # (B, B P)
        scores = scores.view(b, b, p)
        padding = batch.text_pad[None]  # (1, B, P)
        return scores.masked_fill(padding, -torch.inf)

    def own_scores(self, batch: ClipTextBatch) -> Tensor:
        """Return (B,): the score of every clip with its own text, the first candidate."""
        clips = self.encode_clips(batch)  # (B, D)
        own_texts = batch.text[:, 0]  # (B, E)
        texts = self.encode_texts(own_texts)  # (B, D)
        # A joint head takes both vectors as they are.
        if self.joint is not None:
            scores = self.joint(clips[:, None], texts[:, None])  # (B, 1, 1)
            return cast(Tensor, scores[:, 0, 0])
        clips, texts = self._scaled(clips, texts)
        clips = clips.float()
        texts = texts.float()
        return torch.einsum("bd,bd->b", clips, texts)

    def encode_clips(self, batch: ClipTextBatch) -> Tensor:
        """Return the clips' vectors (B, D), not normalised."""
        tower = self.settings.video
        has_frames = batch.video_pad is None
        takes_frames = tower == "s3d"
        if has_frames != takes_frames:
            form = "feature rows"
            if takes_frames:
                form = "frames"
            raise ShapeError(f"this detector takes clips as {form}; detector.video={tower} says so")
        return cast(Tensor, self.video(batch))

    def encode_texts(self, texts: Tensor) -> Tensor:
        """Return the texts' vectors (M, D), not normalised."""
        width = texts.shape[-1]
        expected = self.settings.text_width
        if width != expected:
            raise ShapeError(f"texts are {width} wide, the detector takes {expected}")
        return cast(Tensor, self.text(texts))

    def compare(self, clips: Tensor, texts: Tensor) -> Tensor:
        """Return (B, M) scores of clips (B, D) with texts (M, D)."""
        if self.joint is not None:
            scores = self.joint(clips[:, None], texts[None])  # (B, M, 1)
            return cast(Tensor, scores[..., 0])
        clips, texts = self._scaled(clips, texts)
        return clips @ texts.T

    def _scaled(self, clips: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Return vectors whose dot product is the score."""
        if self.settings.score == "dot":
            return clips, texts
        # A cosine over the temperature.
        unit_clips = F.normalize(clips, dim=-1)
        unit_texts = F.normalize(texts, dim=-1)
        return unit_clips / self.settings.temperature, unit_texts


class FeatureTower(nn.Module):  # type: ignore[misc]
    """Ready features: the mean of a clip's rows, through two layers."""

    def __init__(self, settings: DetectorSettings, width: int) -> None:
        super().__init__()
        self.width = settings.video_width
        self.head = _head(self.width, settings, width)

    def forward(self, batch: ClipTextBatch) -> Tensor:
        """Return the clips' vectors (B, D)."""
        video = batch.video
        width = video.shape[2]
        if width != self.width or batch.video_pad is None:
            raise ShapeError(f"feature rows are {width} wide, the detector takes {self.width}")
        # The mean over the real rows.
        is_real = ~batch.video_pad  # (B, R)
        is_real = is_real.to(video.dtype)
        sums = torch.einsum("brc,br->bc", video, is_real)  # (B, C)
        counts = is_real.sum(1, keepdim=True)  # (B, 1)
        means = sums / counts
        return cast(Tensor, self.head(means))


class S3DTower(nn.Module):  # type: ignore[misc]
    """S3D on uint8 frames, trained end to end. Released weights may be loaded into `s3d` before
    training."""

    def __init__(self, width: int) -> None:
        from stepline.vision.s3d_network import JOINT_WIDTH, S3D

        super().__init__()
        self.s3d = S3D()
        self.project: nn.Module = nn.Identity()
        if width != JOINT_WIDTH:
            self.project = nn.Linear(JOINT_WIDTH, width)

    def forward(self, batch: ClipTextBatch) -> Tensor:
        """Return the clips' vectors (B, D)."""
        pixels = batch.video.float() / 255
        clips = pixels.permute(0, 4, 1, 2, 3)  # (B, 3, T, H, W)
        vectors = self.s3d(clips)
        return cast(Tensor, self.project(vectors))


class JointScore(nn.Module):  # type: ignore[misc]
    """One score from clip and text together, as TAN's alignability head: no space in which they
    could be compared."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.clip = nn.Linear(width, hidden)
        self.text = nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, clips: Tensor, texts: Tensor) -> Tensor:
        """Return (..., 1) for clips and texts (..., D) whose leading dimensions go together."""
        clip_part = self.clip(clips)
        text_part = self.text(texts)
        hidden = torch.relu(clip_part + text_part)
        return cast(Tensor, self.out(hidden))


def _head(inputs: int, settings: DetectorSettings, width: int) -> nn.Module:
    """Return two layers on rows of spread 1: rows of length 1 hold numbers too small for the first
    layer's bias."""
    return nn.Sequential(
        nn.LayerNorm(inputs, elementwise_affine=False),
        nn.Linear(inputs, settings.hidden),
        nn.ReLU(),
        nn.Dropout(settings.dropout),
        nn.Linear(settings.hidden, width),
    )


def contrastive_loss(scores: Tensor, settings: ContrastSettings) -> Loss:
    """Return the loss that the settings name. Raises ShapeError for a batch of one clip, which has
    no negative."""
    shape = tuple(scores.shape)
    is_square = len(shape) == 3 and shape[0] == shape[1]
    if not is_square:
        raise ShapeError(f"scores must be (B, B, P), not {shape}")
    objective = settings.objective
    if objective == "nce":
        own_texts = scores[:, :, 0]
        return nce_loss(own_texts, settings)
    return mil_nce_loss(scores, released=objective == "mil-nce-released")


def nce_loss(scores: Tensor, settings: ContrastSettings) -> Loss:
    """Return the NCE of each clip's own text among it and its negatives (WYS2, the equation of
    section 3.2), summed.

    scores: (B, B), clip by text. Negatives are pairs of the batch that share the clip (`rivals`
    "texts"), the text ("videos"), or as many of each. Of an odd number, one text more. Which ones
    is drawn with torch's random numbers.
    """
    own = scores.diagonal()  # (B,)
    # how many negatives of each kind (None: all of the batch)
    negatives = settings.negatives
    texts = negatives
    videos = negatives
    if negatives is not None and settings.rivals == "both":
        videos = negatives // 2
        texts = negatives - videos
    # The own text comes first.
    candidates = [own[:, None]]
    if settings.rivals != "videos" and texts != 0:
        candidates.append(_sample_negatives(scores, texts))
    if settings.rivals != "texts" and videos != 0:
        candidates.append(_sample_negatives(scores.T, videos))
    all_candidates = torch.cat(candidates, dim=1)
    total = all_candidates.logsumexp(1)  # (B,)
    losses = total - own
    count = scores.new_full((), len(own))
    return Loss(losses.sum(), count)


def mil_nce_loss(scores: Tensor, *, released: bool) -> Loss:
    """Return MIL-NCE of a clip's candidates among them, its other texts and their other clips,
    summed.

    released: as in its published code, a clip's own candidates are counted twice below. So a
    perfect model's loss is log 2 and not 0. Source: Miech et al. 2020, equation 1.
    """
    b = len(scores)
    device = scores.device
    row = torch.arange(b, device=device)
    own = scores[row, row]  # (B, P)
    by_text = scores.transpose(0, 1)  # (B, B, P)
    if not released:
        # The clip's own candidates count once, among its texts.
        diagonal = torch.eye(b, dtype=torch.bool, device=device)
        own_cells = diagonal[:, :, None]
        by_text = by_text.masked_fill(own_cells, -torch.inf)
    of_clip = scores.flatten(1)  # (B, B P)
    of_texts = by_text.flatten(1)
    candidates = torch.cat([of_clip, of_texts], dim=1)  # (B, 2 B P)
    total = candidates.logsumexp(1)  # (B,)
    positives = own.logsumexp(1)
    losses = total - positives
    count = scores.new_full((), b)
    return Loss(losses.sum(), count)


def _sample_negatives(scores: Tensor, count: int | None) -> Tensor:
    """Return (B, count): of each row, that many scores off the diagonal, or all of them."""
    b = len(scores)
    if b < 2:
        raise ShapeError(
            "a batch of one clip holds no rival; raise train.batch, or give more clips"
        )
    device = scores.device
    priorities = torch.rand(b, b, device=device)
    priorities.fill_diagonal_(2.0)  # the diagonal comes last
    order = priorities.argsort(1)
    others = b - 1
    if count is not None:
        others = min(others, count)
    columns = order[:, :others]
    return scores.gather(1, columns)


def clips_at_once(network: Detector) -> int:
    """Return how many clips are scored together: fewer of frames, which are large."""
    if network.settings.video == "s3d":
        return FRAME_CLIPS_PER_BATCH
    return PAIRS_PER_BATCH


def score_pairs(
    network: Detector, pairs: Sequence[ClipTextPair], *, at_once: int = PAIRS_PER_BATCH
) -> Matrix:
    """Return (N,): the score of each clip with its own text. How many are scored together changes
    nothing."""
    device = device_of(network)
    network.eval()
    at_once = min(at_once, clips_at_once(network))
    no_scores = np.empty(0, dtype=np.float32)
    scores: list[Matrix] = [no_scores]
    pair_count = len(pairs)
    with torch.inference_mode(), current_device().autocast():
        for first in range(0, pair_count, at_once):
            chunk = pairs[first : first + at_once]
            batch = collate_pairs(chunk).to(device)
            own_scores = network.own_scores(batch).float()
            scores.append(own_scores.cpu().numpy())
    return np.concatenate(scores)


def write_detector(detector: Detector, path: Path, *, video: str = "", text: str = "") -> None:
    """Write a detector.

    video, text: the backbones whose features and text vectors it takes, where known.
    """
    settings = detector.settings.model_dump(mode="json")
    header = {"settings": settings, "video": video, "text": text}
    NETWORK_FILE.write(path, detector.state_dict(), header)


def read_detector(path: Path) -> Detector:
    """Return the detector that a file holds, ready to judge. Raises ModelError, naming what does
    not fit."""

    def parse(header: Header) -> DetectorSettings:
        settings_json = json.dumps(header["settings"])
        return DetectorSettings.model_validate_json(settings_json)

    _, detector = NETWORK_FILE.load(path, parse, Detector)
    return detector


def trained_on(path: Path) -> tuple[str, str]:
    """Return the names of the backbones whose features and text vectors a detector takes. Each is
    "" where it does not say it."""
    header = NETWORK_FILE.read_header(path, dict)
    video = header.get("video", "")
    text = header.get("text", "")
    return str(video), str(text)
