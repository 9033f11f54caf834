"""NaSVA's network as a graph of ONNX operators: the scores of `nasva/model.py`, by ONNX Runtime and
without torch.

    network = OnnxAligner(settings, weights)          # weights as the file of a trained network holds them
    scores, alignable = network(video, text, ordered=False)

The operators are ONNX's own, so that any of its runtimes takes what `onnx_model` makes. One video,
no padding. Letters: K texts, T feature rows, N rows of either, M keys, C input width, D width, H
heads, d width of a head.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np

from stepline.errors import ModelError, ShapeError
from stepline.models.nasva.settings import AlignerNetworkSettings
from stepline.networks.onnx_graph import Array, OnnxGraph, start_session
from stepline.records import Matrix

LOG_10000: Final = 9.210340371976184  # of the positions; Vaswani et al. 2017
# square of the length from which a vector has a direction
MIN_SQUARE: Final = np.array(1e-12, np.float32)
NORM_EPSILON: Final = 1e-5  # of LayerNorm


class OnnxAligner:
    """A trained network, ready to infer. alignable: whether it says that a text is shown at all."""

    def __init__(self, settings: AlignerNetworkSettings, weights: Mapping[str, Array]) -> None:
        """Make the graph. Raises ModelError where the weights are not those of such a network."""
        self.settings = settings
        self.alignable = settings.alignability or None
        self._session = start_session(onnx_model(settings, weights))

    def __call__(
        self, video: Matrix, text: Matrix, *, ordered: bool
    ) -> tuple[Matrix, Matrix | None]:
        """Return cosines (K, T) and logits that each text is shown at all (K,), None without that
        head.

        video: (T, C), text: (K, C) float32, T at least 1. ordered: the texts are in the order in
        which they are spoken.
        Raises ShapeError for arrays that do not fit or hold NaN.
        """
        self._check(video, text, ordered=ordered)
        if not len(text):
            logits = np.zeros(0, np.float32) if self.alignable else None
            return np.zeros((0, len(video)), np.float32), logits
        feed = {"video": video, "text": text, "ordered": np.array(ordered, np.float32)}
        scores, *heads = self._session.run(None, feed)
        return scores, heads[0] if heads else None

    def _check(self, video: Matrix, text: Matrix, *, ordered: bool) -> None:
        settings = self.settings
        _check_rows("video", video, settings.video_width)
        _check_rows("text", text, settings.text_width)
        if not len(video):
            raise ShapeError("the video needs at least one feature row; extract its features again")
        if ordered and len(text) > settings.text_positions:
            positions = f"the {settings.text_positions} positions that the network has learned"
            raise ShapeError(
                f"{len(text)} texts in order are more than {positions}; "
                "give fewer at a time, or in no order"
            )


def _check_rows(name: str, values: Matrix, width: int) -> None:
    if not (values.ndim == 2 and values.shape[1] == width) or not np.isfinite(values).all():
        expected = f"finite, {width} wide, not {values.shape}"
        raise ShapeError(f"{name} features must be {expected}; use the network's own")


def onnx_model(settings: AlignerNetworkSettings, weights: Mapping[str, Array]) -> bytes:
    """Return the network as the bytes of an ONNX file.

    Inputs: video (T, C), text (K, C), ordered () 0 or 1. Outputs: scores (K, T) and alignable (K,),
    of a network that says whether a text is shown at all. Raises ModelError where the weights are
    not those of such a network.
    """
    return _GraphBuilder(settings, weights).model()


# the name of rows in the graph and of their positions, which enter queries and keys alone
RowsWithPositions: TypeAlias = tuple[str, str | None]


class _GraphBuilder:
    """Puts the graph together. Each weight is taken once, and none may be left."""

    def __init__(self, settings: AlignerNetworkSettings, weights: Mapping[str, Array]) -> None:
        self._settings = settings
        self._weights = dict(weights)
        self._graph = OnnxGraph()
        self._add = self._graph.add
        self._constant = self._graph.constant

    def model(self) -> bytes:
        """Return the bytes of the ONNX file."""
        settings = self._settings
        graph = self._graph
        video = graph.input("video", ("T", settings.video_width))
        text = graph.input("text", ("K", settings.text_width))
        ordered = graph.input("ordered", ())

        # the seconds see each other
        rows = self._projected(video, "video_in", settings.video_width)
        seconds, times = self._placed(rows, self._sines(video))
        for number in range(settings.encoder_layers):
            layer = f"encoder.{number}"
            own = (seconds, times)
            seconds = self._attended(f"{layer}.attention", f"{layer}.attention_norm", own, own)
            seconds = self._fed(layer, seconds)  # (T, D)

        # the texts see each other and the seconds
        memory = (seconds, times)
        rows = self._projected(text, "text_in", settings.text_width)
        texts, places = self._placed(rows, self._learned(text, ordered))
        for number in range(settings.decoder_layers):
            layer = f"decoder.{number}"
            own = (texts, places)
            texts = self._attended(f"{layer}.self_attention", f"{layer}.self_norm", own, own)
            own = (texts, places)
            texts = self._attended(f"{layer}.cross_attention", f"{layer}.cross_norm", own, memory)
            texts = self._fed(layer, texts)  # (K, D)
        texts = self._norm("decoder_norm", texts)

        # the outputs
        text_vectors = self._unit(self._linear("text_out", settings.projection, texts))
        video_vectors = self._unit(self._linear("video_out", settings.projection, seconds))
        columns = self._add("Transpose", video_vectors, perm=[1, 0])
        graph.output("scores", self._add("MatMul", text_vectors, columns))  # (K, T)
        if settings.alignability:
            logits = self._linear("alignable", 1, texts)
            graph.output("alignable", self._reshaped(logits, -1))  # (K,)
        if self._weights:
            unknown = min(self._weights)
            raise ModelError(f"not these weights: {unknown} is unknown; give the right file")
        return graph.serialize()

    def _take(self, name: str, *shape: int) -> Array:
        weight = self._weights.pop(name, None)
        if weight is None:
            raise ModelError(f"not these weights: {name} is missing; give the right file")
        if weight.shape != shape or not np.isfinite(weight).all():
            fault = f"{weight.shape}, not {shape}, or holds NaN or infinity"
            raise ModelError(f"not these weights: {name} is {fault}; give the right file")
        return weight.astype(np.float32, copy=False)

    def _linear(self, name: str, width: int, rows: str, input_width: int | None = None) -> str:
        """Return W rows + b, (N, width), of rows (N, input_width), None for D."""
        weight = self._take(f"{name}.weight", width, input_width or self._settings.width)
        return self._affine(rows, weight, self._take(f"{name}.bias", width))

    def _affine(self, rows: str, weight: Array, bias: Array) -> str:
        return self._add("Gemm", rows, self._constant(weight), self._constant(bias), transB=1)

    def _norm(self, name: str, rows: str) -> str:
        width = self._settings.width
        scale = self._constant(self._take(f"{name}.weight", width))
        shift = self._constant(self._take(f"{name}.bias", width))
        return self._add("LayerNormalization", rows, scale, shift, axis=1, epsilon=NORM_EPSILON)

    def _reshaped(self, values: str, *shape: int) -> str:
        return self._add("Reshape", values, self._constant(np.array(shape)))

    def _projected(self, rows: str, name: str, input_width: int) -> str:
        """Return h (N, D) of features (N, C), which are scaled to mean square 1 first where the
        network is so made."""
        settings = self._settings
        if settings.feature_scale != "none":
            squares = self._add("Mul", rows, rows)
            rows = self._over_root(rows, self._add("ReduceMean", squares, axes=[1]))
        rows = self._linear(f"{name}.0", settings.width, rows, input_width)
        if settings.form == "released":
            rows = self._norm(f"{name}.1", rows)
        return rows

    def _over_root(self, rows: str, square: str) -> str:
        """Return rows (N, D) over the square root of (N, 1), which counts as `MIN_SQUARE` at
        least."""
        at_least = self._add("Max", square, self._constant(MIN_SQUARE))
        return self._add("Div", rows, self._add("Sqrt", at_least))

    def _placed(self, rows: str, positions: str) -> RowsWithPositions:
        """Return the rows, and the positions that every attention is to add. The paper adds them
        here, once."""
        if self._settings.form == "released":
            return rows, positions
        return self._add("Add", rows, positions), None

    def _numbers(self, rows: str) -> str:
        """Return 0, 1, ... (N,) int64, one a row."""
        add = self._add
        zero = self._constant(np.array(0))
        one = self._constant(np.array(1))
        count = add("Gather", add("Shape", rows), zero)
        return add("Range", zero, count, one)

    def _sines(self, rows: str) -> str:
        """Return the fixed positions of rows (N, D): sines in even columns, cosines in odd ones."""
        add = self._add
        width = self._settings.width
        half = width // 2
        columns = np.arange(0, width, 2, dtype=np.float32)
        frequencies = np.exp(columns * np.float32(-LOG_10000 / width))
        numbers = self._reshaped(add("Cast", self._numbers(rows), to=1), -1, 1)
        factors = self._constant(frequencies[None].astype(np.float32))
        angles = add("Mul", numbers, factors)  # (N, D/2)
        sines = self._reshaped(add("Sin", angles), -1, half, 1)
        cosines = self._reshaped(add("Cos", angles), -1, half, 1)
        return self._reshaped(add("Concat", sines, cosines, axis=2), -1, width)

    def _learned(self, rows: str, ordered: str) -> str:
        """Return the learned positions of rows (N, D), 0 where they are in no order."""
        add = self._add
        count = self._settings.text_positions
        width = self._settings.width
        table = self._constant(self._take("text_place.weight", count, width))
        number = add("Min", self._numbers(rows), self._constant(np.array(count - 1)))
        return add("Mul", add("Gather", table, number), ordered)

    def _attended(
        self, name: str, norm: str, rows: RowsWithPositions, memory: RowsWithPositions
    ) -> str:
        """Return rows (N, D) that attend to a memory (M, D), added and normalised."""
        add = self._add
        width = self._settings.width
        heads = self._settings.heads
        head_width = width // heads
        weight = self._take(f"{name}.project.weight", 3 * width, width)
        bias = self._take(f"{name}.project.bias", 3 * width)

        # queries, keys and values
        parts = []
        memory_alone = (memory[0], None)
        for part, (values, positions) in enumerate((rows, memory, memory_alone)):
            scale = np.float32(1)
            if part == 0:  # the scale of the products is in the queries' weights
                scale = np.float32(head_width**-0.5)
            if positions is not None:
                values = add("Add", values, positions)
            cut = slice(part * width, (part + 1) * width)
            projected = self._affine(values, weight[cut] * scale, bias[cut] * scale)
            parts.append(self._reshaped(projected, -1, heads, head_width))
        query, key, value = parts
        heads_first = [1, 0, 2]
        query = add("Transpose", query, perm=heads_first)  # (H, N, d)
        value = add("Transpose", value, perm=heads_first)  # (H, M, d)
        key = add("Transpose", key, perm=[1, 2, 0])  # (H, d, M)

        # the attention
        shares = add("Softmax", add("MatMul", query, key), axis=2)  # (H, N, M)
        mixed = add("Transpose", add("MatMul", shares, value), perm=heads_first)
        mixed = self._reshaped(mixed, -1, width)  # (N, D)
        attended = self._linear(f"{name}.out", width, mixed)
        return self._norm(norm, add("Add", rows[0], attended))

    def _fed(self, layer: str, rows: str) -> str:
        """Return the rows (N, D) with what the feed-forward makes of them, added and normalised."""
        inner = self._settings.feed_forward
        wide = self._add("Relu", self._linear(f"{layer}.feed.wide", inner, rows))
        narrow = self._linear(f"{layer}.feed.narrow", self._settings.width, wide, inner)
        return self._norm(f"{layer}.feed_norm", self._add("Add", rows, narrow))

    def _unit(self, rows: str) -> str:
        """Return the rows at length 1. A row of no length is 0."""
        add = self._add
        squares = add("Mul", rows, rows)
        square = add("ReduceSum", squares, self._constant(np.array([1])))  # (N, 1)
        scaled = self._over_root(rows, square)
        has_direction = add("Greater", square, self._constant(MIN_SQUARE))
        return add("Where", has_direction, scaled, self._constant(np.array(0, np.float32)))
