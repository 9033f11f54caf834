"""Corrected videos as training data and as a test set."""
