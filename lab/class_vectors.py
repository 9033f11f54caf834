"""Embeds the names of ImageNet's classes with MiniLM, for the file that stepline.vision.conse reads.

python -m lab.class_vectors
"""

import numpy as np
from safetensors.numpy import save

from stepline.files.atomic_files import write_atomic
from stepline.files.digests import sha256
from stepline.text import embed
from stepline.vision.conse import NAMES_FILE, VECTORS_FILE, class_names

if __name__ == "__main__":
    vectors = embed(class_names()).astype(np.float16)
    write_atomic(
        VECTORS_FILE, save({"vectors": vectors}, metadata={"names_sha256": sha256(NAMES_FILE)})
    )
