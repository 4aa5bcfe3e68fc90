"""`python -m rlvr`: the command line."""

from rlvr.cli import main

main()
