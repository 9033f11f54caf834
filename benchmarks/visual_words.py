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

RESULT = Path(__file__).resolve().parent / "results" / "visual_words.json"
TAIL = 0.1  # share of the phrases on either side
TOLD, LEAST = 15, 20  # words reported of a side; phrases that a word must be in


def typical(words: Sequence[frozenset[str]], chosen: Array) -> list[tuple[str, float]]:
    """Return (word, z) of the words that are in chosen phrases more than in all, most typical
    first."""
    whole = Counter(word for phrase in words for word in phrase)
    inside = Counter(
        word for phrase, is_in in zip(words, chosen, strict=True) for word in phrase if is_in
    )
    total, part = sum(whole.values()), sum(inside.values())
    scores = {}
    for word, count in whole.items():
        if count >= LEAST and inside[word]:
            # the prior is the whole
            mine, others = inside[word] + count, count - inside[word] + count
            odds = math.log(mine / (part + total - mine)) - math.log(
                others / (2 * total - part - others)
            )
            scores[word] = odds / math.sqrt(1 / mine + 1 / others)
    return sorted(scores.items(), key=lambda pair: -pair[1])


def main() -> None:
    actions = read_actions()
    seen = np.array([action.visible for action in actions], dtype=np.float64)
    p = held_out(
        np.asarray(embed([a.text for a in actions]), np.float64), seen, [a.source for a in actions]
    )
    words = [frozenset(re.findall(r"[a-z']+", action.text.lower())) for action in actions]
    low, high = np.quantile(p, [TAIL, 1 - TAIL])
    result = {"phrases": len(actions), "seen": round(float(seen.mean()), 3)}
    for name, chosen in (("least visual", p <= low), ("most visual", p >= high)):
        rows = []
        for word, z in typical(words, chosen)[:TOLD]:
            having = np.array([word in phrase for phrase in words])
            rows.append(
                {
                    "word": word,
                    "z": round(z, 1),
                    "phrases": int(having.sum()),
                    "seen": round(float(seen[having].mean()), 2),
                }
            )
        result[name] = {"seen": round(float(seen[chosen].mean()), 3), "words": rows}
        print(
            name,
            result[name]["seen"],
            ", ".join(f"{row['word']} ({row['seen']:.2f})" for row in rows),
        )
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
