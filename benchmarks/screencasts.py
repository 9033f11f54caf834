"""Made screencasts with true clicks: python benchmarks/screencasts.py FOLDER [--part dev|test]

Films those that FOLDER lacks.
"""

import argparse
import tempfile
from pathlib import Path

from screencast_recorder import Take, record_screencast, Browser

TAKES = {
    "dev": (
        Take("notes", "ahead", "light", 1.0, (1280, 720), cursor=True, seed=1),
        Take("notes", "after", "dark", 1.25, (1280, 720), cursor=False, seed=2),
        Take("menus", "on", "warm", 1.25, (1024, 768), cursor=True, seed=3),
        Take("menus", "ahead", "dark", 1.0, (1280, 720), cursor=False, seed=4),
        Take("photos", "after", "contrast", 1.0, (720, 960), cursor=True, seed=5),
        Take("photos", "on", "light", 1.5, (1280, 800), cursor=False, seed=6),
        Take("notes", "captions", "warm", 1.0, (1280, 720), cursor=True, seed=7),
    ),
    "test": (
        Take("shop", "ahead", "warm", 1.0, (1280, 720), cursor=False, seed=11),
        Take("shop", "on", "dark", 1.1, (1280, 800), cursor=True, seed=12),
        Take("shop", "after", "light", 1.25, (1280, 720), cursor=True, seed=13),
        Take("settings", "ahead", "contrast", 1.25, (1024, 768), cursor=True, seed=14),
        Take("settings", "on", "light", 1.0, (1280, 720), cursor=False, seed=15),
        Take("settings", "after", "dark", 1.5, (1280, 800), cursor=True, seed=16),
        Take("board", "ahead", "dark", 1.0, (1280, 720), cursor=True, seed=17),
        Take("board", "on", "warm", 1.5, (1440, 900), cursor=True, seed=18),
        Take("board", "after", "light", 1.0, (1024, 768), cursor=False, seed=19),
        Take("sales", "ahead", "light", 1.5, (1440, 900), cursor=True, seed=20),
        Take("sales", "on", "contrast", 1.0, (1280, 720), cursor=True, seed=21),
        Take("sales", "after", "warm", 1.0, (1280, 720), cursor=False, seed=22),
        Take("shop", "captions", "light", 1.0, (1280, 720), cursor=True, seed=23),
        Take("board", "captions", "dark", 1.25, (1280, 720), cursor=False, seed=24),
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=[*TAKES], default="test")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        for take in TAKES[options.part]:
            if not (options.folder / f"{take.id}.json").exists():
                print(record_screencast(take, options.folder, browser), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
