"""Words of the least and of the most visual phrases (WYS2, figure 3), on WhenAct's 10,198 action
phrases.

    python benchmarks/visual_words.py

A phrase's P(seen) is that of its wording alone (`fit_visible_text.py`), by a model that saw no
phrase of its video. The words reported are those that the lowest or the highest tenth has more
often than all phrases have. They are found by z-scores of log-odds with the whole as prior (Monroe
et al. 2008, "Fightin' Words"). Next to each, how often a phrase with it is seen indeed. Writes
benchmarks/results/visual_words.json.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fit_visible_text import held_out
from whenact_data import Array, read_actions

from stepline.text import embed

RESULT_PATH = Path(__file__).resolve().parent / "results" / "visual_words.json"
TAIL_SHARE = 0.1  # share of the phrases on either side
REPORTED_WORDS = 15  # of a side
MIN_PHRASES = 20  # that a word must be in


def typical(words: Sequence[frozenset[str]], is_inside: Array) -> list[tuple[str, float]]:
    """Return (word, z) of the words that are in some phrases more than in all, most typical
    first.

    is_inside: (N,) of the phrases.
    """
    whole: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for number, phrase in enumerate(words):
        whole.update(phrase)
        if is_inside[number]:
            inside.update(phrase)
    total = sum(whole.values())
    part = sum(inside.values())
    scores = {}
    for word, count in whole.items():
        if count >= MIN_PHRASES and inside[word]:
            # the prior is the whole
            inside_count = inside[word] + count
            other_count = count - inside[word] + count
            inside_odds = inside_count / (part + total - inside_count)
            other_odds = other_count / (2 * total - part - other_count)
            difference = math.log(inside_odds) - math.log(other_odds)
            scores[word] = difference / math.sqrt(1 / inside_count + 1 / other_count)
    return sorted(scores.items(), key=lambda pair: -pair[1])


def main() -> None:
    actions = read_actions()
    is_visible = np.array([action.visible for action in actions], dtype=np.float64)
    vectors = np.asarray(embed([action.text for action in actions]), np.float64)
    p = held_out(vectors, is_visible, [action.source for action in actions])
    words = [frozenset(re.findall(r"[a-z']+", action.text.lower())) for action in actions]
    low, high = np.quantile(p, [TAIL_SHARE, 1 - TAIL_SHARE])
    result = {"phrases": len(actions), "seen": round(float(is_visible.mean()), 3)}
    for name, is_tail in (("least visual", p <= low), ("most visual", p >= high)):
        rows = []
        for word, z in typical(words, is_tail)[:REPORTED_WORDS]:
            has_word = np.array([word in phrase for phrase in words])
            row = {
                "word": word,
                "z": round(z, 1),
                "phrases": int(has_word.sum()),
                "seen": round(float(is_visible[has_word].mean()), 2),
            }
            rows.append(row)
        share = round(float(is_visible[is_tail].mean()), 3)
        result[name] = {"seen": share, "words": rows}
        print(name, share, ", ".join(f"{row['word']} ({row['seen']:.2f})" for row in rows))
    RESULT_PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
