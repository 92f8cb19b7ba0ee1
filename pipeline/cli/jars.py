"""The command `turnout setup` of an installed wheel: the Java side of this machine."""

from pathlib import Path

import click

from pipeline.base.terminal import say
from pipeline.platforms.local.fetch import set_up
from pipeline.platforms.local.jars import jars_dir


@click.command("setup")
@click.option("--s3", "stores", flag_value="s3", multiple=True, help="Also those for tables in S3.")
@click.option("--azure", "stores", flag_value="azure", multiple=True, help="Also those for tables in Azure.")
@click.option("--gcs", "stores", flag_value="gcs", multiple=True, help="Also those for tables in Google Cloud Storage.")
def fetch_jars(env_dir: Path, stores: tuple[str, ...]) -> None:  # noqa: ARG001 - every command has the option
    """Fetch the jars that Spark and the demo need, for this Python: an installed wheel brings none.

    In a checkout `./turnout setup` does this with all the rest. A Databricks runtime needs none of them.
    """
    set_up(stores)
    say(f"The jars are in {jars_dir()}.")
