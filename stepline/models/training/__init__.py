"""Training of every network: one loop (AdamW, cosine schedule, resumable checkpoints), one run
folder, one form of network file."""
