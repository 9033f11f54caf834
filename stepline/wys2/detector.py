"""The detector: a tower for clips, a tower for texts, and how alike what they give is (WYS2, section 3.2).

Letters: B clips, R feature rows, C width of a row, M texts, D width of the space shared by clips and texts.

Contrastive losses on the scores of a batch: WYS2's NCE, and MIL-NCE in its correct and its released form.

Letters: B clips, P candidate texts of a clip. scores (B, B, P): of clip i with candidate p of clip j, -inf on padding.

The detector on disk: one safetensors file that carries its settings and says which features it was trained on.
"""

import json
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stepline.errors import ModelError, ShapeError
from stepline.storage import atomic_path
from stepline.training.loop import Loss
from stepline.wys2.clips import PairBatch
from stepline.wys2.settings import ContrastSettings, DetectorSettings


class Detector(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Scores every clip of a batch with every text: higher means likelier that the clip shows what the text says."""

    def __init__(self, settings: DetectorSettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.text_width if settings.text == "frozen" else settings.width
        self.text: nn.Module = nn.Identity() if settings.text == "frozen" else _head(settings.text_width, settings)
        self.video: nn.Module = Frames(width) if settings.video == "s3d" else Rows(settings, width)
        self.joint = Joint(width, settings.hidden) if settings.score == "joint" else None

    def forward(self, batch: PairBatch) -> Tensor:
        """Return scores (B, B, P): of clip i with candidate p of clip j; -inf for candidates that are padding."""
        b, p, _ = batch.text.shape
        texts = self.encode_texts(batch.text.flatten(0, 1))  # (B P, D)
        scores = self.compare(self.encode_clips(batch), texts).view(b, b, p)
        return scores.masked_fill(batch.text_pad[None], -torch.inf)

    def own(self, batch: PairBatch) -> Tensor:
        """Return (B,): the score of every clip with its own text, the first candidate."""
        clips, texts = self.encode_clips(batch), self.encode_texts(batch.text[:, 0])
        if self.joint is not None:
            return cast(Tensor, self.joint(clips[:, None], texts[:, None])[:, 0, 0])
        return torch.einsum("bd,bd->b", *self._scaled(clips, texts))

    def encode_clips(self, batch: PairBatch) -> Tensor:
        """Return (B, D), not normalised."""
        if (batch.video_pad is None) != (self.settings.video == "s3d"):
            want = "frames" if self.settings.video == "s3d" else "feature rows"
            raise ShapeError(f"this detector takes clips as {want}; detector.video={self.settings.video} says so")
        return cast(Tensor, self.video(batch))

    def encode_texts(self, texts: Tensor) -> Tensor:
        """Return (M, D), not normalised."""
        if texts.shape[-1] != self.settings.text_width:
            raise ShapeError(f"texts are {texts.shape[-1]} wide, the detector takes {self.settings.text_width}")
        return cast(Tensor, self.text(texts))

    def compare(self, clips: Tensor, texts: Tensor) -> Tensor:
        """Return (B, M) scores of clips (B, D) with texts (M, D)."""
        if self.joint is not None:
            return cast(Tensor, self.joint(clips[:, None], texts[None])[..., 0])
        clips, texts = self._scaled(clips, texts)
        return clips @ texts.T

    def _scaled(self, clips: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Return vectors whose dot product is the score."""
        if self.settings.score == "dot":
            return clips, texts
        return F.normalize(clips, dim=-1) / self.settings.temperature, F.normalize(texts, dim=-1)


class Rows(nn.Module):  # type: ignore[misc]
    """Ready features: the mean of a clip's rows, through two layers."""

    def __init__(self, settings: DetectorSettings, width: int) -> None:
        super().__init__()
        self.width = settings.video_width
        self.head = _head(settings.video_width, settings, width)

    def forward(self, batch: PairBatch) -> Tensor:
        """Return (B, width)."""
        if batch.video.shape[2] != self.width or batch.video_pad is None:
            raise ShapeError(f"feature rows are {batch.video.shape[2]} wide, the detector takes {self.width}")
        kept = (~batch.video_pad).to(batch.video.dtype)  # (B, R)
        mean = torch.einsum("brc,br->bc", batch.video, kept) / kept.sum(1, keepdim=True)
        return cast(Tensor, self.head(mean))


class Frames(nn.Module):  # type: ignore[misc]
    """S3D on uint8 frames, trained end to end; `s3d` may be given released weights before training."""

    def __init__(self, width: int) -> None:
        from stepline.vision.s3d.network import JOINT, S3D

        super().__init__()
        self.s3d = S3D()
        self.project: nn.Module = nn.Identity() if width == JOINT else nn.Linear(JOINT, width)

    def forward(self, batch: PairBatch) -> Tensor:
        """Return (B, width)."""
        clips = (batch.video.float() / 255).permute(0, 4, 1, 2, 3)  # (B, 3, T, H, W)
        return cast(Tensor, self.project(self.s3d(clips)))


class Joint(nn.Module):  # type: ignore[misc]
    """One score from clip and text together, as TAN's alignability head: no space in which they could be compared."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.clip, self.text = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, clips: Tensor, texts: Tensor) -> Tensor:
        """Return (..., 1) for clips and texts (..., D) whose leading dimensions go together."""
        return cast(Tensor, self.out(torch.relu(self.clip(clips) + self.text(texts))))


def _head(inputs: int, settings: DetectorSettings, width: int | None = None) -> nn.Module:
    """Return two layers on rows of spread 1: rows of length 1 hold numbers too small for the first layer's bias."""
    return nn.Sequential(
        nn.LayerNorm(inputs, elementwise_affine=False),
        nn.Linear(inputs, settings.hidden),
        nn.ReLU(),
        nn.Dropout(settings.dropout),
        nn.Linear(settings.hidden, width or settings.width),
    )


def contrast(scores: Tensor, settings: ContrastSettings) -> Loss:
    """Return the loss that the settings name. Raises ShapeError for a batch of one clip, which has no rival."""
    if scores.ndim != 3 or scores.shape[0] != scores.shape[1]:
        raise ShapeError(f"scores must be (B, B, P), not {tuple(scores.shape)}")
    if settings.objective == "nce":
        return nce(scores[:, :, 0], settings)
    return mil_nce(scores, released=settings.objective == "mil-nce-released")


def nce(scores: Tensor, settings: ContrastSettings) -> Loss:
    """Return -log of the share of each clip's own text among it and its rivals (WYS2, the equation of section 3.2).

    scores: (B, B), clip by text. Rivals are pairs of the batch that share the clip ("texts"), the text ("videos"), or
    as many of each, of an odd number one text more; which ones is drawn with torch's random numbers.
    """
    own = scores.diagonal()  # (B,)
    texts, videos = _shares(settings)
    rivals = []
    if texts != 0:
        rivals.append(_drawn(scores, texts))
    if videos != 0:
        rivals.append(_drawn(scores.T, videos))
    every = torch.cat([own[:, None], *rivals], dim=1)  # (B, 1 + rivals)
    return Loss((every.logsumexp(1) - own).sum(), torch.tensor(float(len(own))))


def mil_nce(scores: Tensor, *, released: bool) -> Loss:
    """Return MIL-NCE: -log of the share of a clip's candidates among them, its other texts and their other clips.

    released: as its published code does, a clip's own candidates are counted twice below, so that a perfect model's
    loss is log 2 and not 0. Source: Miech et al. 2020, equation 1.
    """
    b = len(scores)
    mine = scores[torch.arange(b), torch.arange(b)]  # (B, P)
    rows, columns = scores.flatten(1), scores.transpose(0, 1).flatten(1)  # (B, B P): with its clip, with its texts
    if not released:
        diagonal = torch.eye(b, dtype=torch.bool, device=scores.device)
        columns = scores.transpose(0, 1).masked_fill(diagonal[:, :, None], -torch.inf).flatten(1)
    every = torch.cat([rows, columns], dim=1)
    return Loss((every.logsumexp(1) - mine.logsumexp(1)).sum(), torch.tensor(float(b)))


def _shares(settings: ContrastSettings) -> tuple[int | None, int | None]:
    """Return how many rivals are other texts and how many other clips; None: all of the batch."""
    count = settings.negatives
    if settings.rivals == "texts":
        return count, 0
    if settings.rivals == "videos":
        return 0, count
    return (None, None) if count is None else ((count + 1) // 2, count // 2)


def _drawn(scores: Tensor, count: int | None) -> Tensor:
    """Return (B, count): of each row, that many scores off the diagonal, or all of them."""
    b = len(scores)
    if b < 2:
        raise ShapeError("a batch of one clip holds no rival; raise train.batch, or give more clips")
    chance = torch.rand(b, b, device=scores.device).fill_diagonal_(2.0)  # the diagonal comes last
    chosen = chance.argsort(1)[:, : min(b - 1, b - 1 if count is None else count)]
    return scores.gather(1, chosen)


KIND = "stepline.wys2.detector"
VERSION = 1  # of the names of the weights; a reader refuses any other
SHOWN = 3  # wrong names that an error tells


def write_detector(detector: Detector, path: Path, *, video: str = "", text: str = "") -> None:
    """Write a detector; video, text: the backbones whose features and text vectors it takes, where known."""
    settings = detector.settings.model_dump(mode="json")
    header = {"kind": KIND, "version": VERSION, "settings": settings, "video": video, "text": text}
    weights = {name: value.detach().cpu().contiguous() for name, value in detector.state_dict().items()}
    with atomic_path(path) as partial:
        save_file(weights, partial, metadata={"stepline": json.dumps(header, sort_keys=True)})


def read_detector(path: Path) -> Detector:
    """Return the detector that a file holds, ready to judge. Raises ModelError, naming what does not fit."""
    header, weights = _read(path)
    try:
        settings = DetectorSettings.model_validate_json(json.dumps(header["settings"]))
    except (ValidationError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: its settings are of another version ({reason}); train it again") from error
    detector = Detector(settings)
    wanted = {name: tuple(value.shape) for name, value in detector.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in weights.items()}
    faults = sorted(name for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name))
    faults += sorted(name for name, value in weights.items() if not bool(value.isfinite().all()))
    if faults:
        told = f"{len(faults)} weights are missing, unknown, misshapen or NaN ({', '.join(faults[:SHOWN])})"
        raise ModelError(f"{path}: {told}; train it again")
    detector.load_state_dict(weights)
    detector.eval()
    return detector


def trained_on(path: Path) -> tuple[str, str]:
    """Return the names of the backbones whose features and text vectors a detector takes; "" where it does not say."""
    header, _ = _read(path)
    return str(header.get("video", "")), str(header.get("text", ""))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("stepline", "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"{path}: not a detector that can be read ({error}); give one that Stepline wrote") from error
    if header.get("kind") != KIND or header.get("version") != VERSION:
        told = f"kind {header.get('kind')!r}, version {header.get('version')!r}"
        raise ModelError(f"{path}: no WYS2 detector of Stepline ({told}); give one that `stepline train wys2` wrote")
    return header, weights
