"""What corrected videos teach: training data, a test set, and a refit of a few parameters."""
