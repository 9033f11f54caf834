"""What a run will take, from a sample of its videos: hours, disk, tokens and money, with
intervals."""
