"""What a run writes below OUT: results and failures, its inventory and log, and who works on it."""
