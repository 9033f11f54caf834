"""What people and machines get of a record: JSON, WebVTT, SRT, chapters, HowTo JSON-LD, an HTML
page, clips."""

from stepline.outputs.chapters import ChapterPlan, chapters, plan_chapters
from stepline.outputs.clips import CLIPS_SUFFIX, clip_spans, remove_clips, write_clips
from stepline.outputs.jsonld import jsonld
from stepline.outputs.ownership import foreign_outputs, missing_outputs
from stepline.outputs.page import page
from stepline.outputs.registry import (
    OUTPUTS,
    USUAL,
    Output,
    OutputExtras,
    find_outputs,
    output_path,
    output_paths,
)
from stepline.outputs.subtitles import srt, webvtt
from stepline.outputs.terminal import TRANSCRIPT_FORMATS, step_table
from stepline.outputs.text import safe_stem
from stepline.outputs.web_addresses import RecordLinks, WebAddresses
from stepline.outputs.write import write_outputs

__all__ = [
    "CLIPS_SUFFIX",
    "OUTPUTS",
    "TRANSCRIPT_FORMATS",
    "USUAL",
    "ChapterPlan",
    "Output",
    "OutputExtras",
    "RecordLinks",
    "WebAddresses",
    "chapters",
    "clip_spans",
    "find_outputs",
    "foreign_outputs",
    "jsonld",
    "missing_outputs",
    "output_path",
    "output_paths",
    "page",
    "plan_chapters",
    "remove_clips",
    "safe_stem",
    "srt",
    "step_table",
    "webvtt",
    "write_clips",
    "write_outputs",
]
