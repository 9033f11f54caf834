"""ConSE: images as vectors in a text embedding space, without any image-text training.

An image is the convex combination of the text embeddings of its most likely class names. A text is
its own embedding. Objects among ImageNet's 1,000 classes rank well. Actions and other objects do
not.
Source: Norouzi et al. 2013, "Zero-Shot Learning by Convex Combination of Semantic Embeddings",
equation 3.
Differs: MiniLM sentence embeddings of each class's full list of names instead of word2vec.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.errors import ModelError
from stepline.files.digests import sha256
from stepline.networks.weights import find_weights
from stepline.numeric import softmax, unit_rows
from stepline.records import Matrix
from stepline.text import embed
from stepline.vision.encode import Images, check_images
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from stepline.vision.efficientnet import EfficientNetLite0

# One class per line, in ILSVRC 2012 order.
NAMES_FILE = Path(__file__).with_name("imagenet_classes.txt")
# their MiniLM embeddings, float16, written by lab/class_vectors.py
VECTORS_FILE = Path(__file__).with_name("imagenet_classes.safetensors")


class ConSEBackbone:
    """The default backbone: class scores of EfficientNet-Lite0, text embeddings of MiniLM."""

    name = "conse"

    def __init__(
        self,
        classifier: Callable[[Images], Matrix],
        class_vectors: Matrix,
        *,
        class_count: int,
        text_model: str,
    ) -> None:
        """Combine an image classifier with the text embeddings of its classes.

        Args:
            classifier: computes class scores (B, 1000) of images.
            class_vectors: (1000, D) unit vectors, the text embedding of each class name.
            class_count: number of most likely classes to combine (T in the paper).
            text_model: name of the text encoder of the class vectors, as `text.embed` takes it.
        """
        self._classifier = classifier
        self._class_vectors = class_vectors
        self._class_count = class_count
        self.dim = int(class_vectors.shape[1])
        self.text_model = text_model

    def encode_images(self, images: Images) -> Matrix:
        """Return unit vectors (B, D) of uint8 RGB images (B, H, W, 3).

        A vector is the mean text embedding of the most likely class names, weighted by probability.
        """
        check_images(images)
        if not len(images):
            return np.empty((0, self.dim), dtype=np.float32)
        probabilities = softmax(self._classifier(images))  # (B, 1000)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, : self._class_count]  # (B, T)
        weights = np.take_along_axis(probabilities, best, axis=1)  # (B, T)
        return unit_rows(np.einsum("bt,btd->bd", weights, self._class_vectors[best]))  # (B, D)

    def encode_texts(self, texts: Sequence[str]) -> Matrix:
        """Return the text embeddings of K texts, unit vectors (K, D)."""
        return embed(texts, model=self.text_model)


def load_conse(settings: VisionSettings) -> ConSEBackbone:
    """Return the ConSE backbone. Raises ModelError if weights are missing or damaged."""
    path = settings.path or find_weights("efficientnet-lite0")
    load_classifier(path)
    model = settings.text_model
    vectors = read_class_vectors() if model == "minilm" else embed(class_names(), model=model)
    return ConSEBackbone(
        lambda images: load_classifier(path)(images),
        vectors,
        class_count=settings.classes,
        text_model=model,
    )


@functools.cache
def load_classifier(path: Path) -> "EfficientNetLite0":
    """Return the classifier of a weights file, which is kept until the cache is cleared."""
    from stepline.vision.efficientnet import EfficientNetLite0

    return EfficientNetLite0(path)


def class_names() -> list[str]:
    """Return the names of the 1,000 ImageNet classes, each with synonyms separated by commas."""
    return NAMES_FILE.read_text(encoding="utf-8").splitlines()


def read_class_vectors() -> Matrix:
    """Return the MiniLM embeddings of the 1,000 ImageNet class names, (1000, 384), from a file.

    The file is part of the package. It saves the 2 s that computing the embeddings takes.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(VECTORS_FILE, framework="np") as file:
            names_digest = (file.metadata() or {}).get("names_sha256")
            vectors = file.get_tensor("vectors").astype(np.float32)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{VECTORS_FILE}: cannot be read ({error}); install stepline again"
        ) from error
    if names_digest != sha256(NAMES_FILE):
        raise ModelError(f"{VECTORS_FILE}: not made from {NAMES_FILE.name}; install stepline again")
    return unit_rows(vectors)
