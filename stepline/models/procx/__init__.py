"""ProcX: finds and describes the steps of a video from its features alone (Batra et al., ECCV 2024,
section 5)."""
