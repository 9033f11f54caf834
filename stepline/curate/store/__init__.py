"""What a run writes down below OUT: results, failures, folders, timings, what it works on, and who works on it."""
