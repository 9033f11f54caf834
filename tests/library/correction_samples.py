"""Corrections as the tests of the library send them."""

import json

from stepline.library.corrections import Correction


def correction(number, *edits, undoes=None, base=None, by="ann", window="", video="v"):
    """The correction c0, c1, ... of a video, made when the earlier ones were known."""
    tree = {"id": f"c{number}", "video": video, "by": by, "when": 0.0, "window": window}
    tree |= {"edits": edits, "undoes": undoes, "base": number if base is None else base}
    return Correction.model_validate_json(json.dumps(tree))
