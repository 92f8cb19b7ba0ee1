"""The command `turnout doctor`: it imports nothing that may be missing."""

import sys
from pathlib import Path

import click


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(env_dir: Path, as_json: bool) -> None:
    """Print what is installed, what is missing and what to do.

    Changes nothing. Exit code 1 if something needed is missing.
    """
    from pipeline.setup import doctor as checks

    sys.exit(checks.run(env_dir, as_json))
