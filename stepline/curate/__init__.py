"""Many videos to a dataset: sources, recipes, engines that survive what goes wrong, and what they
export."""
