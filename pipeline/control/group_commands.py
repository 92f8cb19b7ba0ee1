"""`turnout groups`: what is wanted of cluster groups. `pipeline.cli` takes it in and adds `--env-dir`."""

import click

from pipeline.control.placement_commands import drain, propose


@click.group()
def groups() -> None:
    """Cluster groups: what is wanted of them, and how full they are."""


groups.add_command(propose)
groups.add_command(drain)
