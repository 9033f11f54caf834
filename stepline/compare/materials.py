"""The materials and tools of several videos: which videos need a thing, and how much of it."""

from collections import Counter
from collections.abc import Callable, Sequence

from stepline.compare.amounts import AmountSpread, amount_spreads, material_amounts
from stepline.records import FrozenModel, Material, Matrix, Seconds

Embedder = Callable[[Sequence[str]], Matrix]  # texts to unit rows (N, D)
NamedMaterial = tuple[str, Material]  # with the id of the video
VideoMaterials = tuple[str, Sequence[Material]]  # id of a video, what it needs

# cosine from which two names are one thing: "egg" and "eggs", but not "red onion" and "onion soup"
MIN_NAME_SIMILARITY = 0.85


class MaterialMention(FrozenModel):
    """A video that names a material or tool, and the second of the first mention."""

    video: str
    """id of the video"""
    at: Seconds
    """second of the video at which the thing is named first"""


class ComparedMaterial(FrozenModel):
    """A material or tool that videos need, by the name that most of them use."""

    name: str
    """the most frequent name, in lower case"""
    videos: tuple[MaterialMention, ...]
    """the videos that name it"""
    amounts: tuple[AmountSpread, ...]
    """how much of it the videos use, one spread for each kind of unit (mass, volume)"""


def compare_materials(
    videos: Sequence[VideoMaterials], embedder: Embedder
) -> tuple[ComparedMaterial, ...]:
    """Return the materials that the videos name, those of most videos first.

    Names with nearly the same meaning are one material.

    Args:
        videos: for each video, its id and its materials.
        embedder: function that maps N texts to unit vectors (N, D).
    """
    # Names that mean the same become one, in the words of most videos.
    names = Counter(m.name.casefold() for _, materials in videos for m in materials)
    canonical_names = _canonical_names(names, embedder)
    mentions: dict[str, list[NamedMaterial]] = {}
    for video, materials in videos:
        for material in materials:
            name = canonical_names[material.name.casefold()]
            mentions.setdefault(name, []).append((video, material))
    # What each video says of a thing, joined.
    compared = [_compared_material(name, rows) for name, rows in mentions.items()]
    return tuple(sorted(compared, key=lambda material: len(material.videos), reverse=True))


def _canonical_names(name_counts: Counter[str], embedder: Embedder) -> dict[str, str]:
    """Return name -> most frequent name with nearly the same meaning, which may be itself.

    Args:
        name_counts: name -> how often it occurs.
        embedder: function that maps N texts to unit vectors (N, D).
    """
    names = [name for name, _ in name_counts.most_common()]
    if not names:
        return {}
    vectors = embedder(names)
    canonical_rows: list[int] = []
    canonical_names = {}
    # Frequent names come first, so that rare ones join them and not the other way.
    for row, name in enumerate(names):
        canonical_row = row
        if canonical_rows:
            cosines = vectors[canonical_rows] @ vectors[row]
            best = int(cosines.argmax())
            if cosines[best] >= MIN_NAME_SIMILARITY:
                canonical_row = canonical_rows[best]
        if canonical_row == row:
            canonical_rows.append(row)
        canonical_names[name] = names[canonical_row]
    return canonical_names


def _compared_material(name: str, mentions: Sequence[NamedMaterial]) -> ComparedMaterial:
    # A video may name a thing several times: the first time counts, amounts all do.
    first: dict[str, float] = {}
    amounts = []
    for video, material in mentions:
        first[video] = min(first.get(video, material.at), material.at)
        amounts += material_amounts(video, material)
    videos = tuple(MaterialMention(video=video, at=at) for video, at in first.items())
    return ComparedMaterial(name=name, videos=videos, amounts=amount_spreads(amounts))
