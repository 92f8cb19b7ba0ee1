"""The command `turnout doctor`: it imports nothing that may be missing."""

import sys
from pathlib import Path

import click


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(env_dir: Path, as_json: bool) -> None:
    """Print what is there, what is missing and what to do."""
    from pipeline.setup import doctor as checks

    sys.exit(checks.run(env_dir, as_json))
