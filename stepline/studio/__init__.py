"""The studio: a web server on which people watch, correct and search a library of videos."""
