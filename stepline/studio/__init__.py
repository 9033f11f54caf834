"""Studio: a library of videos watched, corrected, searched and served on one machine."""
