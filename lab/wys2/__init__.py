"""WYS2's tables in the simulated world, and the uses of its detector."""
