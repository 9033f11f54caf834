"""`python -m research`: whole tables of a paper."""

from research.cli import research

if __name__ == "__main__":
    research(prog_name="python -m research")
