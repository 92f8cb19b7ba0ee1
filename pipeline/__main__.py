"""Lets `python -m pipeline` run the command line."""

from pipeline.cli.main import main

main()
