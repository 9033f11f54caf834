"""Word stems good enough to tell that "seasoning" and "season" are one: endings cut off, no dictionary."""

from stepline.writing.word_sets import word_set

FUNCTION = word_set(
    """
    a an the this that these those it its he she they them we us you your i my our his her their some any all each
    every both few more most other such own same so than too very just only also then now here there when where why how
    what which who whom if because as until while of at by for with about against between into through during before
    after above below to from up down in out on off over under again further once and but or nor be am is are was were
    been being have has had having do does did doing will would shall should can could may might must going gonna get
    got let want like really kind sort bit little lot well okay ok right
    """
)
ENDINGS = ("ings", "ing", "edly", "ies", "ed", "es", "s", "ly", "e")


def stem(word: str) -> str:
    """Return a lower-case word without its ending: stirring, stirred, stirs -> stir."""
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not (ending == "s" and word.endswith("ss")):
            word = word[: -len(ending)] + ("y" if ending == "ies" else "")
            break
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls"
    return word[:-1] if doubled else word.removesuffix("e")
