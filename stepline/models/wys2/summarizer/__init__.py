"""A trained summarizer in IV-Sum's form (ECCV 2022): how much does each segment of a video matter?

    samples = [segment_video(record, features, vectors, settings) for ...]  # 4 s segments, seen and said
    network = train_summarizer(samples, folder, summarizer=SummarizerSettings(video_width=512))
    predict_importance(network, sample)                                    # one number a second, for wys2.summary

Features are exchangeable, which is how WYS2 (section 4.4) measures what its own are worth.
"""

from stepline.models.wys2.settings import SummarizerSettings
from stepline.models.wys2.summarizer.dataset import SegmentedVideo, segment_video
from stepline.models.wys2.summarizer.model import (
    LoadedSummarizer,
    Summarizer,
    read_summarizer,
    write_summarizer,
)
from stepline.models.wys2.summarizer.train import predict_importance, train_summarizer

__all__ = [
    "LoadedSummarizer",
    "SegmentedVideo",
    "Summarizer",
    "SummarizerSettings",
    "predict_importance",
    "read_summarizer",
    "segment_video",
    "train_summarizer",
    "write_summarizer",
]
