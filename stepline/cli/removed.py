"""Commands of earlier releases, each with what to use instead. An entry stays for one release."""

import click

from stepline.errors import SettingsError

# command without `stepline` -> what to use instead, as the end of a sentence
REMOVED_COMMANDS = {
    "calibrate": "`stepline train calibrate` does it",
    "completion": "`_STEPLINE_COMPLETE=bash_source stepline` prints the script (also zsh, fish)",
    "excluded": "`stepline curate excluded` does it",
    "export-onnx": "`stepline train export-onnx` does it",
    "learn": "`stepline curate corrections` does it",
    "train writer": "`python -m lab.writer_training.train` in a checkout of the repository trains "
    "the narration tagger",
    "curate workflow": "`curate run`, `annotate vnd`, `train`, `evaluate` and `curate run` "
    "again do its work, as docs/evening.md shows",
    "shots": "PySceneDetect lists the shots of a video and cuts it there",
}


def refuse_removed(context: click.Context, name: str) -> None:
    """Raise SettingsError, which names the cure, if an earlier release had this command.

    Args:
        context: of the group whose command is called.
        name: of the command in the group.
    """
    names = [name]
    while context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    command = " ".join(names)
    if command in REMOVED_COMMANDS:
        cure = REMOVED_COMMANDS[command]
        raise SettingsError(f"stepline {command}: no longer a command; {cure}")
