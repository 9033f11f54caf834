"""The main job: a video in, its record out. Alone in knowing all stages."""
