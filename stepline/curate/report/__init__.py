"""The report of a run: one HTML page with its plots and its audit inside."""
