"""The report of a run: one HTML page with its plots inside, and the same numbers as JSON."""

from stepline.sieve_swap.report.page import page
from stepline.sieve_swap.report.write import write_report

__all__ = ["page", "write_report"]
