"""`python -m stepline` is `stepline`."""

from stepline.cli import main

main(prog_name="stepline")
