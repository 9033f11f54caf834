"""People check a random sample of a dataset, as in the manual check of NaSVA (section 4.5), and how
well they agree."""
