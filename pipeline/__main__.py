"""Lets `python -m pipeline` run the command line."""

from pipeline.cli import main

main()
