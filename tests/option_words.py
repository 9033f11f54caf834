"""Options of a command as Python's keywords."""


def option_words(**values):
    """Return the words of options: at_end=x is `--at-end x`, and a list repeats its option."""
    words = []
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{name.replace('_', '-')}", each]
    return words
