"""`python -m research.drawn_videos demo|render|many`: drawn videos, their truth next to them."""

import argparse
import sys
from pathlib import Path

from research.drawn_videos import Script, make_script, read_script, render, true_record
from stepline.errors import SteplineError
from stepline.storage import write_record

DEMO = Path(__file__).parent / "demo_script.json"


def main(arguments: list[str] | None = None) -> int:
    """Draw what the command line asks for. 0 done, 1 an error in one line."""
    parser = argparse.ArgumentParser(
        prog="python -m research.drawn_videos",
        description="Draws and speaks videos with known truth.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="make the demo video again: demo.mp4 and demo_truth.json in a folder"
    )
    demo.add_argument("out", type=Path)
    one = commands.add_parser(
        "render", help="draw the script of a seed, or of a .json file, to an .mp4"
    )
    one.add_argument("script", help="a seed, or a script's .json file")
    one.add_argument("out", type=Path)
    many = commands.add_parser(
        "many", help="draw COUNT videos of seeds FIRST, FIRST+1, ... into a folder"
    )
    many.add_argument("first", type=int)
    many.add_argument("count", type=int)
    many.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    try:
        if given.command == "demo":
            draw(read_script(DEMO), given.out / "demo.mp4")
        elif given.command == "render":
            draw(
                make_script(int(given.script))
                if given.script.isdigit()
                else read_script(Path(given.script)),
                given.out,
            )
        else:
            for seed in range(given.first, given.first + given.count):
                script = make_script(seed)
                draw(script, given.folder / f"{script.id}.mp4")
    except SteplineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def draw(script: Script, path: Path) -> None:
    """Render a script, write its truth next to it as `<stem>_truth.json`, and say so."""
    spoken = render(script, path)
    beside = path.with_name(f"{path.stem}_truth.json")
    write_record(true_record(spoken), beside)
    print(
        f"{path}: {spoken.duration:.1f} s, {path.stat().st_size / 1e6:.2f} MB, "
        f"{len(spoken.steps)} true steps in {beside}"
    )


if __name__ == "__main__":
    sys.exit(main())
