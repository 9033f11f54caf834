"""A data set in an evening: curate, review by people, agreement, training, a measure on held-out
videos, publication."""
