"""`python -m research`: whole tables of a paper."""

from research.cli import experiment

if __name__ == "__main__":
    experiment(prog_name="python -m research")
