"""A detector as a backbone: embeddings of every second and of every sentence (WYS2, sections 4.3 and 4.4)."""

import numpy as np
import torch
import torch.nn.functional as F

from stepline.records import FeatureSequence, Matrix, Span
from stepline.wys2.model import Detector
from stepline.wys2.pairs import collate_pairs, pair_of

SECONDS = 3.0  # of the clip around each second; WYS2, section 4


def embed_seconds(network: Detector, features: FeatureSequence, seconds: float = SECONDS) -> FeatureSequence:
    """Return (T, D) unit rows, one a feature row: what the video tower makes of the clip around its middle."""
    nothing = np.zeros((1, network.settings.text_width), dtype=np.float32)
    middles = (np.arange(len(features.values)) + 0.5) / features.rate
    clips = [Span(max(0.0, middle - seconds / 2), middle + seconds / 2) for middle in middles.tolist()]
    batch = collate_pairs([pair_of("", features, clip, nothing) for clip in clips])
    network.eval()
    with torch.inference_mode():
        rows = network.encode_clips(batch.to(next(network.parameters()).device))
    return FeatureSequence(_unit(rows), features.rate, f"wys2 of {features.backbone}")


def embed_sentences(network: Detector, vectors: Matrix) -> Matrix:
    """Return (K, D) unit rows: what the text tower makes of the vectors (K, E) of sentences."""
    network.eval()
    with torch.inference_mode():
        return _unit(network.encode_texts(torch.from_numpy(vectors).to(next(network.parameters()).device)))


def _unit(rows: torch.Tensor) -> Matrix:
    unit: Matrix = F.normalize(rows.float(), dim=-1).cpu().numpy()
    return unit
