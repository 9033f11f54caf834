"""What a process keeps for its whole life, forgotten for the next test."""


def forget_file_systems():
    """The next use of a bucket connects again: to a new server, or with other rights."""
    from stepline.files.remote import filesystems

    filesystems._create_filesystem.cache_clear()


def forget_checked_weights():
    """The next use of a network looks at its files again."""
    from stepline.networks import weights

    weights._find_checked.cache_clear()


def forget_parser():
    """The next sentence loads the parser again."""
    from stepline.writing.extractive import english

    english._load_parser.cache_clear()
