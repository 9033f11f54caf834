"""Which files of a folder are taken for videos, and what is said of others."""

from stepline.pipeline.sources import find_videos


def fill(folder, *names):
    for name in names:
        (folder / name).write_bytes(b"x")
    return folder


def test_videos_of_cameras_discs_and_old_programs_are_taken(tmp_path):
    names = ("a.MTS", "b.m2ts", "c.vob", "d.f4v", "e.ogv", "f.asf", "g.3gp", "h.mp4", "i.MOV")
    found = find_videos([fill(tmp_path, *names)])
    assert [path.name for path in found] == list(names)
