"""One training loop for every network: AdamW, a cosine schedule, checkpoints that resume bit for
bit."""
