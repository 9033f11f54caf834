"""NaSVA's tables in the simulated world, or on real features."""
