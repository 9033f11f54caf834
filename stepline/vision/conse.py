"""ConSE: pictures placed among words without any image-text training.

A picture is the convex combination of the embeddings of its most likely class names. A text is its
own embedding. Objects among ImageNet's 1,000 classes rank well. Actions, and whatever is not such a
class, do not.
Source: Norouzi et al. 2013, "Zero-Shot Learning by Convex Combination of Semantic Embeddings",
equation 3.
Differs: MiniLM sentence embeddings of each class's full list of names instead of word2vec.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.errors import ModelError
from stepline.files.digests import sha256
from stepline.networks.device import Device, current_device
from stepline.networks.weights import find_weights
from stepline.numeric import softmax, unit_rows
from stepline.records import Matrix
from stepline.text import embed
from stepline.vision.encode import Pictures, check_pictures
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from stepline.vision.efficientnet import EfficientNetLite0

NAMES_FILE = Path(__file__).with_name(
    "imagenet_classes.txt"
)  # one class per line, in ILSVRC 2012 order
# their MiniLM embeddings, float16
VECTORS_FILE = Path(__file__).with_name("imagenet_classes.safetensors")

# One network per file, kept from one video to the next.
_loaded: dict[tuple[Path, Device], "EfficientNetLite0"] = {}


class ConSEBackbone:
    """The embedded default backbone: EfficientNet-Lite0 scores, MiniLM names."""

    name = "conse"

    def __init__(
        self, network: "EfficientNetLite0", classes: Matrix, *, class_count: int, text_model: str
    ) -> None:
        """classes: (1000, D) unit rows, the embedding of each class name. `likeliest`: how many of
        the most likely classes are combined."""
        self._network = network
        self._classes = classes
        self.dim = int(classes.shape[1])  # D, that of the text model
        self._likeliest = class_count
        self.text_model = text_model

    def encode_images(self, pictures: Pictures) -> Matrix:
        """Return (B, D) unit rows: the names of the most likely classes, weighted by their
        probabilities."""
        check_pictures(pictures)
        if not len(pictures):
            return np.empty((0, self.dim), dtype=np.float32)
        probabilities = softmax(self._network(pictures))  # (B, 1000)
        # The names of the most likely classes, weighed by how likely they are.
        rows = np.argsort(-probabilities, axis=1, kind="stable")[:, : self._likeliest]  # (B, T)
        best = np.take_along_axis(probabilities, rows, axis=1)  # (B, T)
        return unit_rows(np.einsum("bt,btd->bd", best, self._classes[rows]))  # (B, D)

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return (K, D) unit rows."""
        return embed(texts, model=self.text_model)


def load_conse(settings: VisionSettings) -> ConSEBackbone:
    """Return the ConSE backbone. Raises ModelError when weights are missing or damaged."""
    from stepline.vision.efficientnet import EfficientNetLite0

    path = settings.path or find_weights("efficientnet-lite0")
    key = (path, current_device())
    if key not in _loaded:
        _loaded[key] = EfficientNetLite0(path)
    model = settings.text_model
    classes = read_class_vectors() if model == "minilm" else embed(class_names(), model=model)
    return ConSEBackbone(_loaded[key], classes, class_count=settings.classes, text_model=model)


def class_names() -> list[str]:
    """Return the names of the 1,000 classes, synonyms divided by commas."""
    return NAMES_FILE.read_text(encoding="utf-8").splitlines()


def read_class_vectors() -> Matrix:
    """Return the embeddings of the class names (1000, 384) that the package carries. Embedding them
    takes 2 s."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(VECTORS_FILE, framework="np") as file:
            source_digest = (file.metadata() or {}).get("names_sha256")
            vectors = file.get_tensor("vectors").astype(np.float32)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{VECTORS_FILE}: cannot be read ({error}); install stepline again"
        ) from error
    # The vectors must be of the names as they are now.
    if source_digest != sha256(NAMES_FILE):
        cure = "run `python -m stepline.vision.conse`"
        raise ModelError(f"{VECTORS_FILE}: not made from {NAMES_FILE.name}; {cure}")
    return unit_rows(vectors)


def write_class_vectors() -> None:
    """Embed the class names with MiniLM and store them next to this file, as float16."""
    from safetensors.numpy import save

    from stepline.files.atomic_files import write_atomic

    vectors = embed(class_names()).astype(np.float16)
    write_atomic(
        VECTORS_FILE, save({"vectors": vectors}, metadata={"names_sha256": sha256(NAMES_FILE)})
    )


if __name__ == "__main__":
    write_class_vectors()
