"""Videos that answer a query, where `SearchIndex.search` answers by moments.

A video answers by what its title means, or by what its best moments do, whichever is more like the
query.
"""

from stepline.library.search import LEAST_LIKENESS, SearchIndex
from stepline.text import embed

MOMENT_COUNT = 3  # of a video, that answer for it
# of the likeness of the best video, from which others are answers too
SHARE_OF_BEST = 0.8


def find_records(index: SearchIndex, query: str, most: int) -> list[str]:
    """Return the records whose videos answer a query, the best first, by their names below the
    folder.

    index: one that searches by meaning. most: how many at most. Raises SettingsError for a query
    without a word.
    """
    # By moments, and by the title where that is more like the query.
    likeness = index.record_likeness(query, MOMENT_COUNT)
    titles = index.titles()
    for name, cosine in _title_likeness(titles, query).items():
        least = max(LEAST_LIKENESS, likeness.get(name, 0.0))
        if cosine >= least:
            likeness[name] = cosine
    if not likeness:
        return []
    # Only videos that are about as like the query as the best one.
    best = max(likeness.values())
    least = SHARE_OF_BEST * best
    answers = []
    for name, cosine in likeness.items():
        if cosine >= least:
            answers.append(name)
    answers.sort(key=lambda name: (-likeness[name], name))
    return answers[:most]


def _title_likeness(titles: dict[str, str], query: str) -> dict[str, float]:
    """Return the cosine of a query with the title of each record."""
    if not titles:
        return {}
    texts = list(titles.values())
    title_vectors = embed(texts)  # (N, D)
    query_vectors = embed([query])  # (1, D)
    cosines = title_vectors @ query_vectors[0]  # (N,)
    pairs = zip(titles, cosines.tolist(), strict=True)
    return dict(pairs)
