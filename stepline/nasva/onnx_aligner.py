"""NaSVA's network as a graph of ONNX operators: the scores of `nasva/model.py`, by ONNX Runtime and
without torch.

    network = OnnxAligner(settings, weights)          # weights as the file of a trained network holds them
    scores, alignable = network(video, text, ordered=False)

The operators are ONNX's own, so that any of its runtimes takes what `onnx_model` makes. One video,
no padding. Letters: K texts, T feature rows, N rows of either, M keys, C input width, D width, H
heads, d width of a head.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from stepline.errors import ModelError, ShapeError
from stepline.nasva.settings import AlignerNetworkSettings
from stepline.onnx_graph import Array, OnnxGraph, start_session
from stepline.records import Matrix

LOG_BASE: Final = 9.210340371976184  # ln 10000; Vaswani et al. 2017
# square of the length from which a vector has a direction
SHORTEST: Final = np.array(1e-12, np.float32)
EPSILON: Final = 1e-5  # of LayerNorm


class OnnxAligner:
    """A trained network, ready to infer. alignable: whether it tells that a text is shown at
    all."""

    def __init__(self, settings: AlignerNetworkSettings, weights: Mapping[str, Array]) -> None:
        """Make the graph. Raises ModelError where the weights are not those of such a network."""
        self.settings, self.alignable = settings, settings.alignability or None
        self._session = start_session(onnx_model(settings, weights))

    def __call__(
        self, video: Matrix, text: Matrix, *, ordered: bool
    ) -> tuple[Matrix, Matrix | None]:
        """Return cosines (K, T) and logits that each text is shown at all (K,), None where it tells
        none.

        video: (T, C), text: (K, C) float32, T at least 1. ordered: the texts stand as they are
        spoken.
        Raises ShapeError for arrays that do not fit or hold NaN.
        """
        settings = self.settings
        for name, values, width in (
            ("video", video, settings.video_width),
            ("text", text, settings.text_width),
        ):
            if values.ndim != 2 or values.shape[1] != width or not np.isfinite(values).all():
                raise ShapeError(
                    f"{name} features must be finite, {width} wide, not {values.shape}; use the network's own"
                )
        if not len(video):
            raise ShapeError("the video needs at least one feature row; extract its features again")
        if ordered and len(text) > settings.text_positions:
            most = f"the {settings.text_positions} positions that the network has learned"
            raise ShapeError(
                f"{len(text)} texts in order are more than {most}; give fewer at a time, or in no order"
            )
        if not len(text):
            return np.zeros((0, len(video)), np.float32), np.zeros(
                0, np.float32
            ) if self.alignable else None
        given = {"video": video, "text": text, "ordered": np.array(ordered, np.float32)}
        scores, *logits = self._session.run(None, given)
        return scores, logits[0] if logits else None


def onnx_model(settings: AlignerNetworkSettings, weights: Mapping[str, Array]) -> bytes:
    """Return the network as the bytes of an ONNX file.

    Inputs: video (T, C), text (K, C), ordered () 0 or 1; outputs: scores (K, T) and, of a network
    that tells whether a text is shown at all, alignable (K,). Raises ModelError where the weights
    are not those of such a network.
    """
    return _GraphBuilder(settings, weights).model()


class _GraphBuilder:
    """Puts the graph together; each weight is taken once, and none may be left."""

    def __init__(self, settings: AlignerNetworkSettings, weights: Mapping[str, Array]) -> None:
        self._settings, self._weights, self._graph = settings, dict(weights), OnnxGraph()

    def model(self) -> bytes:
        """Return the bytes of the ONNX file."""
        settings, graph = self._settings, self._graph
        video = graph.input("video", ("T", settings.video_width))
        text = graph.input("text", ("K", settings.text_width))
        ordered = graph.input("ordered", ())
        seconds, times = self._placed(self._projected(video, "video_in"), self._sines(video))
        for number in range(settings.encoder_layers):
            layer = f"encoder.{number}"
            seconds = self._attended(
                f"{layer}.attention", f"{layer}.attention_norm", (seconds, times)
            )
            seconds = self._fed(layer, seconds)  # (T, D)
        texts, places = self._placed(self._projected(text, "text_in"), self._learned(text, ordered))
        for number in range(settings.decoder_layers):
            layer = f"decoder.{number}"
            texts = self._attended(f"{layer}.self_attention", f"{layer}.self_norm", (texts, places))
            cross = f"{layer}.cross_attention", f"{layer}.cross_norm"
            texts = self._attended(*cross, (texts, places), (seconds, times))
            texts = self._fed(layer, texts)  # (K, D)
        texts = self._norm("decoder_norm", texts)
        shown = self._unit(self._linear("text_out", settings.projection, texts, settings.width))
        seen = self._unit(self._linear("video_out", settings.projection, seconds, settings.width))
        # (K, T)
        graph.output(
            "scores", graph.add("MatMul", shown, graph.add("Transpose", seen, perm=[1, 0]))
        )
        if settings.alignability:
            # (K,)
            graph.output(
                "alignable", self._reshaped(self._linear("alignable", 1, texts, settings.width), -1)
            )
        if self._weights:
            raise ModelError(
                f"not these weights: {min(self._weights)} is unknown; give the right file"
            )
        return graph.serialize()

    def _take(self, name: str, *shape: int) -> Array:
        weight = self._weights.pop(name, None)
        if weight is None or weight.shape != shape or not np.isfinite(weight).all():
            found = (
                "missing"
                if weight is None
                else f"{weight.shape}, not {shape}, or holds NaN or infinity"
            )
            raise ModelError(f"not these weights: {name} is {found}; give the right file")
        return weight.astype(np.float32, copy=False)

    def _linear(self, name: str, width: int, rows: str, given: int) -> str:
        """Return W rows + b, (N, width), of rows (N, given)."""
        weight, bias = self._take(f"{name}.weight", width, given), self._take(f"{name}.bias", width)
        return self._affine(rows, weight, bias)

    def _affine(self, rows: str, weight: Array, bias: Array) -> str:
        return self._graph.add(
            "Gemm", rows, self._graph.constant(weight), self._graph.constant(bias), transB=1
        )

    def _norm(self, name: str, rows: str) -> str:
        width = self._settings.width
        scale, shift = (
            self._graph.constant(self._take(f"{name}.{part}", width)) for part in ("weight", "bias")
        )
        return self._graph.add("LayerNormalization", rows, scale, shift, axis=1, epsilon=EPSILON)

    def _reshaped(self, values: str, *shape: int) -> str:
        return self._graph.add("Reshape", values, self._graph.constant(np.array(shape)))

    def _projected(self, rows: str, name: str) -> str:
        """Return h (N, D) of features (N, C), which are scaled to mean square 1 first where the
        network is so made."""
        settings, graph = self._settings, self._graph
        given = settings.video_width if name == "video_in" else settings.text_width
        if settings.feature_scale != "none":
            mean = graph.add("ReduceMean", graph.add("Mul", rows, rows), axes=[1])  # (N, 1)
            rows = graph.add(
                "Div", rows, graph.add("Sqrt", graph.add("Max", mean, graph.constant(SHORTEST)))
            )
        rows = self._linear(f"{name}.0", settings.width, rows, given)
        return self._norm(f"{name}.1", rows) if settings.form == "released" else rows

    def _placed(self, rows: str, places: str) -> tuple[str, str | None]:
        """Return the rows, and the positions that every attention is to add; the paper adds them
        here, once."""
        return (
            (rows, places)
            if self._settings.form == "released"
            else (self._graph.add("Add", rows, places), None)
        )

    def _numbers(self, rows: str) -> str:
        """Return 0, 1, ... (N,) int64, one a row."""
        graph = self._graph
        zero, one = graph.constant(np.array(0)), graph.constant(np.array(1))
        return graph.add("Range", zero, graph.add("Gather", graph.add("Shape", rows), zero), one)

    def _sines(self, rows: str) -> str:
        """Return the fixed positions of rows (N, D): sines in even columns, cosines in odd ones."""
        graph, width = self._graph, self._settings.width
        steps = np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-LOG_BASE / width))
        number = self._reshaped(graph.add("Cast", self._numbers(rows), to=1), -1, 1)
        # (N, D/2)
        angles = graph.add("Mul", number, graph.constant(steps[None].astype(np.float32)))
        waves = (
            self._reshaped(graph.add(wave, angles), -1, width // 2, 1) for wave in ("Sin", "Cos")
        )
        return self._reshaped(graph.add("Concat", *waves, axis=2), -1, width)

    def _learned(self, rows: str, ordered: str) -> str:
        """Return the learned positions of rows (N, D), 0 where they stand in no order."""
        graph, count = self._graph, self._settings.text_positions
        table = graph.constant(self._take("text_place.weight", count, self._settings.width))
        number = graph.add("Min", self._numbers(rows), graph.constant(np.array(count - 1)))
        return graph.add("Mul", graph.add("Gather", table, number), ordered)

    def _attended(
        self,
        name: str,
        norm: str,
        rows: tuple[str, str | None],
        seen: tuple[str, str | None] | None = None,
    ) -> str:
        """Return rows (N, D) that attend to what is `seen` (M, D), to themselves without it; added
        and normalised.

        rows, seen: with their positions, which enter queries and keys alone.
        """
        graph, width, heads = self._graph, self._settings.width, self._settings.heads
        own, keys = rows[0], seen or rows
        weight, bias = (
            self._take(f"{name}.project.weight", 3 * width, width),
            self._take(f"{name}.project.bias", 3 * width),
        )
        scale = np.float32((width // heads) ** -0.5)
        parts = []
        for part, (values, places) in enumerate((rows, keys, (keys[0], None))):
            placed = values if places is None else graph.add("Add", values, places)
            cut, by = slice(part * width, (part + 1) * width), scale if part == 0 else np.float32(1)
            parts.append(
                self._reshaped(
                    self._affine(placed, weight[cut] * by, bias[cut] * by),
                    -1,
                    heads,
                    width // heads,
                )
            )
        # (H, N or M, d)
        query, value = (graph.add("Transpose", parts[part], perm=[1, 0, 2]) for part in (0, 2))
        key = graph.add("Transpose", parts[1], perm=[1, 2, 0])  # (H, d, M)
        # (H, N, d)
        mixed = graph.add(
            "MatMul", graph.add("Softmax", graph.add("MatMul", query, key), axis=2), value
        )
        mixed = self._reshaped(graph.add("Transpose", mixed, perm=[1, 0, 2]), -1, width)  # (N, D)
        return self._norm(
            norm, graph.add("Add", own, self._linear(f"{name}.out", width, mixed, width))
        )

    def _fed(self, layer: str, rows: str) -> str:
        """Return the rows (N, D) with what the feed-forward makes of them, added and normalised."""
        width, inner = self._settings.width, self._settings.feed_forward
        wide = self._graph.add("Relu", self._linear(f"{layer}.feed.wide", inner, rows, width))
        narrow = self._linear(f"{layer}.feed.narrow", width, wide, inner)
        return self._norm(f"{layer}.feed_norm", self._graph.add("Add", rows, narrow))

    def _unit(self, rows: str) -> str:
        """Return the rows at length 1; a row of no length is 0."""
        graph, least = self._graph, self._graph.constant(SHORTEST)
        # (N, 1)
        square = graph.add("ReduceSum", graph.add("Mul", rows, rows), graph.constant(np.array([1])))
        scaled = graph.add("Div", rows, graph.add("Sqrt", graph.add("Max", square, least)))
        return graph.add(
            "Where",
            graph.add("Greater", square, least),
            scaled,
            graph.constant(np.array(0, np.float32)),
        )
