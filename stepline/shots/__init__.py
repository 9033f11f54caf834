"""Shot lists: where a video cuts, a picture of every shot, and which steps are shown in it.

shots = find_shots(path, VisionSettings())
shot_list, files = write_shots(list_shots(source, shots), source.path, Path("out"))
"""
