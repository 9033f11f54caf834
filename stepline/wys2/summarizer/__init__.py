"""A trained summarizer in IV-Sum's form (ECCV 2022): how much does each segment of a video matter?

    samples = [segmented(record, features, vectors, settings) for ...]     # 4 s segments, what is seen and said in each
    network = train_summarizer(samples, folder, settings=SummarizerSettings(video_width=512))
    importance(network, sample)                                            # one number a second, for wys2.summary

Features are exchangeable, which is how WYS2 (section 4.4) measures what its own are worth.
"""

from stepline.wys2.summarizer.dataset import Segmented, segmented
from stepline.wys2.summarizer.model import LoadedSummarizer, Summarizer, read_summarizer, write_summarizer
from stepline.wys2.summarizer.settings import SummarizerSettings
from stepline.wys2.summarizer.train import importance, train_summarizer

__all__ = [
    "LoadedSummarizer",
    "Segmented",
    "Summarizer",
    "SummarizerSettings",
    "importance",
    "read_summarizer",
    "segmented",
    "train_summarizer",
    "write_summarizer",
]
