"""Draws and speaks a corpus of short how-to videos for `stepline curate`.

    python lab/curate_corpus.py DIR --videos 300 [--clips FOLDER]

DIR/videos holds <id>.mp4. DIR/truth/<id>.json is a Record each (what is said, and where it is
really shown). DIR/videos.csv is the list that `stepline curate` reads (video, title, task,
category). One video in ten is a copy of an earlier one. `--clips` adds files as they are, without
a truth. A video that is there is not drawn again.
"""

import argparse
import csv
import shutil
from pathlib import Path

from lab.drawn_videos import RenderSettings, make_script, render, true_record
from stepline.records import Record
from stepline.storage import read_record, write_record

RENDER_SETTINGS = RenderSettings(
    width=192, height=112, frame_rate=6, quality=30, sound_bits=24_000, threads=1
)
COPY_STEP = 10  # one video of this many is a copy


def draw(number: int, folder: Path) -> Record:
    """Draw one video and return its truth."""
    name = f"howto_{number:05d}"
    path = folder / "videos" / f"{name}.mp4"
    if number % COPY_STEP < COPY_STEP - 1:
        record = true_record(render(make_script(number), path, RENDER_SETTINGS))
    else:
        original = f"howto_{number - COPY_STEP + 1:05d}"
        shutil.copyfile(folder / "videos" / f"{original}.mp4", path)
        record = read_record(folder / "truth" / f"{original}.json")
    video = record.video.model_copy(update={"id": name, "path": path.name})
    return record.model_copy(update={"id": name, "video": video})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--videos", type=int, default=300)
    parser.add_argument("--clips", type=Path, help="folder of further clips, taken as they are")
    options = parser.parse_args()
    for part in ("videos", "truth"):
        (options.folder / part).mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, ...]] = [("video", "title", "task", "category")]
    for number in range(options.videos):
        path = options.folder / "truth" / f"howto_{number:05d}.json"
        if not path.exists():
            write_record(draw(number, options.folder), path)
        video = read_record(path).video
        rows.append((f"videos/{video.path}", video.title or "", video.task or "", "Drawn"))
    clips = sorted(options.clips.glob("*.m[pk][4v]")) if options.clips else []
    for clip in clips:
        shutil.copyfile(clip, options.folder / "videos" / clip.name)
        rows.append((f"videos/{clip.name}", "", "", "Clip"))
    with (options.folder / "videos.csv").open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
