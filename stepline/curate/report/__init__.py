"""The report of a run: one HTML page of numbers and examples, with its audit inside."""
