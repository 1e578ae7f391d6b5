"""`python -m stepwell` is the command line."""

from stepwell.cli import main

main(prog_name="stepwell")
