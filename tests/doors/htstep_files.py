"""HT-Step's release, tiny: annotations and taxonomy of the videos of `nasva_files`."""

import csv
import json

from nasva_files import HT_STEP

# video -> activity and variation of its article
ARTICLES = {
    "stepped-one": ("Cook Pasta", "none"),
    "stepped-two": ("Make a Frame", "A"),
    "stepped-three": ("Make a Frame", "B"),
}
# video -> rows of (place of the step in its article, start, end): a step shown twice, the same row
# twice, one without a length, steps that are not shown
SHOWN = {
    "stepped-one": [(0, 4.0, 14.5), (2, 6.2, 11.9), (0, 20.0, 27.0), (3, 9, 9), (0, 4.0, 14.5)],
    "stepped-two": [(1, 11.0, 20.4), (0, 22.5, 27.0)],
    "stepped-three": [(0, 1.0, 8.5), (1, 25.0, 31.0), (4, 24.5, 39.0), (3, 40.0, 52.0)],
}


def write_release(folder):
    """Write annotations.json and taxonomy.csv."""
    folder.mkdir(exist_ok=True)
    tree = {}
    rows = []
    for id, (activity, variation) in ARTICLES.items():
        first = len(rows)
        for place, headline in enumerate(HT_STEP[id][1]):
            rows.append((first + place, activity, place, variation, 1, headline, ""))
        shown = [{"id": first + place, "segment": [s, e]} for place, s, e in SHOWN[id]]
        tree[id] = {"subset": "val_seen", "activity": activity, "annotations": shown}
    (folder / "annotations.json").write_text(json.dumps(tree))
    with (folder / "taxonomy.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        names = "global_step_index activity step_index variation variation_index headline paragraph"
        writer.writerow(names.split())
        writer.writerows(rows)
