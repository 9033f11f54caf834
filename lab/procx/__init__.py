"""ProcX's tables in the simulated world, and the baselines next to it."""
