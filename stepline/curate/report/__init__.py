"""The report of a run: one HTML page with its plots and its audit inside."""

from stepline.curate.report.write import Report, make_report, write_report

__all__ = ["Report", "make_report", "write_report"]
