"""A tiny HTM-Align in the layout that TAN's code reads: annotations, rows of S3D's mixed_5c, words of
S3D's text tower."""

import json

import closed_forms

WIDTH = 1024  # of S3D's mixed_5c; the code knows no other
WINDOW = 16  # its `seq_len`, 64 in the paper

# id -> rows of one second, and (alignable, start, end, text). A sentence that is never in a window
# (only windows near one that is not alignable are seen), no known word, and a video shorter than
# half a window.
LATE = """1 1.2 16.9 Chop the onion | 0 9.0 12.5 I love this old pan | 1 2.25 20.75 fry it, in butter |
1 10.0 33.0 qwyx zzt | 1 14.4 38.1 stir the rice until it's soft | 0 52.0 55.0 there you go |
1 60.0 65.5 serve"""
EARLY = """1 0.4 11.6 cut a board | 1 3.9 37.1 drill two holes | 0 4.0 6.0 my father had one |
0 9.0 10.0 hello | 1 33.5 45.0 drill the board"""
HTM_ALIGN = {
    "told-late": (66, closed_forms.marked_rows(LATE)),
    "told-early": (41, closed_forms.marked_rows(EARLY)),
    "short": (7, [[0, 0.0, 2.0, "hello"], [1, 0.5, 6.5, "cut the onion"]]),
}
WORDS = (
    "chop the onion i love old pan fry it in butter stir rice until it's soft cut a board drill two "
    "holes my had one hello"
).split()


def features(id):
    """Return the rows (T, WIDTH) float32 of a video."""
    return closed_forms.rows(id, HTM_ALIGN[id][0], WIDTH)


def write_htm_align(folder):
    """Write htm_align.json."""
    tree = {id: rows for id, (_, rows) in HTM_ALIGN.items()}
    (folder / "htm_align.json").write_text(json.dumps(tree))
