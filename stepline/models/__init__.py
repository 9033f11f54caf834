"""The trained networks of the three systems, and the one training loop."""
