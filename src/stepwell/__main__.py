"""`python -m stepwell` is the command line."""

from stepwell.start import main

main()
