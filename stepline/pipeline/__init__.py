"""The main job: a video in, its record out; alone in knowing all stages."""
