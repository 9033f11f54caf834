"""What people and machines get of a record: JSON, WebVTT, SRT, chapters, HowTo JSON-LD, an HTML page, clips."""

from stepline.show.chapters import ChapterPlan, chapters, plan_chapters
from stepline.show.clips import SUFFIX as CLIPS_SUFFIX
from stepline.show.clips import clip_places, remove_clips, write_clips
from stepline.show.jsonld import jsonld
from stepline.show.names import safe_stem
from stepline.show.outputs import OUTPUTS, Extras, lacking, output_path, write_outputs
from stepline.show.page import page
from stepline.show.storyboard import SUMMARY_SUFFIX, storyboard
from stepline.show.terminal import TRANSCRIPTS, step_table
from stepline.show.webvtt import srt, webvtt

__all__ = [
    "CLIPS_SUFFIX",
    "OUTPUTS",
    "SUMMARY_SUFFIX",
    "TRANSCRIPTS",
    "ChapterPlan",
    "Extras",
    "chapters",
    "clip_places",
    "jsonld",
    "lacking",
    "output_path",
    "page",
    "plan_chapters",
    "remove_clips",
    "safe_stem",
    "srt",
    "step_table",
    "storyboard",
    "webvtt",
    "write_clips",
    "write_outputs",
]
