"""Every benchmark that can be scored: one row each, with its conventions and their exact rules."""

from stepline.evaluate.protocols.table import BENCHMARKS, Benchmark, Convention, evaluate

__all__ = ["BENCHMARKS", "Benchmark", "Convention", "evaluate"]
