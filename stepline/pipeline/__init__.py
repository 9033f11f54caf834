"""The main job: a video is turned into the record of its steps."""
