"""`python -m lab.drawn_videos demo|render|many`: drawn videos, their truth next to them."""

import argparse
import sys
from pathlib import Path

from lab.drawn_videos import Script, make_script, read_script, render, true_record
from stepline.errors import SteplineError
from stepline.storage import write_record

DEMO_SCRIPT = Path(__file__).parent / "demo_script.json"


def main(arguments: list[str] | None = None) -> int:
    """Draw what the command line asks for. 0 done, 1 an error in one line."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "demo":
            draw(read_script(DEMO_SCRIPT), options.out / "demo.mp4")
        elif options.command == "render":
            draw(_script_of(options.script), options.out)
        else:
            for seed in range(options.first, options.first + options.count):
                script = make_script(seed)
                draw(script, options.folder / f"{script.id}.mp4")
    except SteplineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.drawn_videos", description="Draws and speaks videos with known truth."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="make the demo video again: demo.mp4 and demo_truth.json in a folder"
    )
    demo.add_argument("out", type=Path)
    single = commands.add_parser(
        "render", help="draw the script of a seed, or of a .json file, to an .mp4"
    )
    single.add_argument("script", help="a seed, or a script's .json file")
    single.add_argument("out", type=Path)
    many = commands.add_parser(
        "many", help="draw COUNT videos of seeds FIRST, FIRST+1, ... into a folder"
    )
    many.add_argument("first", type=int)
    many.add_argument("count", type=int)
    many.add_argument("folder", type=Path)
    return parser


def _script_of(name: str) -> Script:
    """Return the script of a seed, or of a JSON file."""
    if name.isdigit():
        return make_script(int(name))
    return read_script(Path(name))


def draw(script: Script, path: Path) -> None:
    """Render a script, write its truth next to it as `<stem>_truth.json`, and print their sizes."""
    spoken = render(script, path)
    truth_path = path.with_name(f"{path.stem}_truth.json")
    write_record(true_record(spoken), truth_path)
    megabytes = path.stat().st_size / 1e6
    print(
        f"{path}: {spoken.duration:.1f} s, {megabytes:.2f} MB, "
        f"{len(spoken.steps)} true steps in {truth_path}"
    )


if __name__ == "__main__":
    sys.exit(main())
