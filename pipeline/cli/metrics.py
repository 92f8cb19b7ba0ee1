"""The commands `turnout metrics …`."""

from pathlib import Path

import click

from pipeline.base.terminal import say
from pipeline.settings.tree import load


@click.command("serve")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port; 0 picks a free one. Default: the setting metrics.serve_port."
)
@click.option("--bind", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address of this machine.")
def serve_metrics(env_dir: Path, port: int | None, bind: str) -> None:
    """Serve the metrics of all drivers, read from the metrics tables and the control store, until it is stopped.

    For drivers that no Prometheus can reach, as those of job clusters. Names and labels are those of the drivers' own
    /metrics, without what is out of date. A Prometheus scrapes either the drivers or this. See docs/metrics.md.
    """
    from pipeline.control.present import noted
    from pipeline.platforms.local.signals import stop_on_signals
    from pipeline.telemetry.bridge.serving import serve

    settings, paths = load(env_dir)
    with noted(paths, "metrics serve"):
        serve(settings, paths, bind, settings.metrics.serve_port if port is None else port, stop_on_signals(), say)
