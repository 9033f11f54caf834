"""Steps while the video still runs: a live source heard, written and grounded as it comes, and
reported as events."""
