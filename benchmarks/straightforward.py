"""What a competent script of the same parts looks like: the libraries' own front doors, one after
the other.

    python benchmarks/straightforward.py VIDEO [--vision]

It recognises speech, takes the root verb's clause of each sentence as a step, embeds both with
sentence-transformers and prints where each step is said. With --vision it also encodes a frame per
second. speed.py compares with it.
"""

import sys

import av
import numpy as np
import spacy
import torch
from faster_whisper import WhisperModel
from PIL import Image
from sentence_transformers import SentenceTransformer

from stepline.networks.weights import find_weights


def main(path: str, vision: bool) -> None:
    """Print one line per step."""
    # what is said
    recogniser = WhisperModel(
        str(find_weights("whisper-tiny.en")), device="cpu", compute_type="int8"
    )
    segments, _ = recogniser.transcribe(path, word_timestamps=True, vad_filter=True, beam_size=5)
    starts = []
    texts = []
    for segment in segments:
        starts.append(segment.start)
        texts.append(segment.text.strip())

    # the clauses of root verbs
    parser = spacy.load(find_weights("en-core-web-sm"))
    steps = []
    for doc in parser.pipe(texts):
        for token in doc:
            if token.pos_ == "VERB" and token.dep_ in ("ROOT", "conj", "xcomp"):
                steps.append(" ".join(word.text for word in token.subtree))

    encoder = SentenceTransformer(str(find_weights("minilm")))
    likeness = encoder.encode(steps) @ encoder.encode(texts).T
    if vision:
        look(path)
    for step, row in zip(steps, likeness, strict=True):
        print(f"{starts[int(np.argmax(row))]:7.1f}  {step}")


def look(path: str) -> torch.Tensor:
    """Return class scores of a frame per second, each encoded on its own."""
    from vision import straightforward

    weights = torch.load(find_weights("efficientnet-lite0"), weights_only=True)
    scores = []
    with av.open(path) as container, torch.inference_mode():
        rate = round(float(container.streams.video[0].average_rate))
        for index, frame in enumerate(container.decode(video=0)):
            if index % rate:
                continue
            image = Image.fromarray(frame.to_ndarray(format="rgb24"))
            small = image.resize((224, 224), Image.Resampling.BICUBIC)
            picture = torch.from_numpy(np.array(small))
            scores.append(straightforward(weights, picture[None]))
    return torch.cat(scores)


if __name__ == "__main__":
    main(sys.argv[1], "--vision" in sys.argv)
