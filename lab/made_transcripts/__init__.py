"""Narrated cooking videos made from written recipes, with the truth of every sentence: which steps
it says, if any.

A grammar over spaCy's parse says each step as a cook would (`grammar`). A recogniser's slips are
put in (`noise`), and idle lines of `idle_lines.txt` come between (`videos`). The recipes are read
at run time and never copied.
"""

from made_transcripts.recipes import Recipe, read_recipes
from made_transcripts.videos import MadeVideo, make_videos

__all__ = ["MadeVideo", "Recipe", "make_videos", "read_recipes"]
