"""Drawn and spoken videos with known truth.

`make_script(seed)` writes a script, `render(script, path)` draws and speaks it,
`true_record(script)` is its record. FROZEN as WORLD_VERSION 1: no drawing, action or wording is
ever fitted to a detector, and none changes after the grounding was tuned. A change needs a new
version and new benchmark figures. `lab.simulate` is another world, of features and texts
without pictures, for training and its claims.
"""

from lab.drawn_videos.render import render
from lab.drawn_videos.script import WORLD_VERSION, Script, read_script, true_record, write_script
from lab.drawn_videos.script_generator import make_script
from lab.drawn_videos.settings import RenderSettings, ScriptSettings

__all__ = [
    "WORLD_VERSION",
    "RenderSettings",
    "Script",
    "ScriptSettings",
    "make_script",
    "read_script",
    "render",
    "true_record",
    "write_script",
]
