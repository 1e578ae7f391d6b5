"""`python -m stepwell` is the command line."""

from stepwell.cli.start import main

main()
