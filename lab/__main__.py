"""`python -m lab`: whole tables of a paper."""

from lab.cli import lab

if __name__ == "__main__":
    lab(prog_name="python -m lab")
