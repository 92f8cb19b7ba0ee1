"""The commands `turnout alerts …`."""

from pathlib import Path

import click

from pipeline.base.errors import Refused
from pipeline.base.terminal import say
from pipeline.cli.options import Finite
from pipeline.settings.tree import load


@click.command("write")
@click.option("--scrape-seconds", type=Finite(1, 30), default=15.0, show_default=True, help="Time between two scrapes.")
def write_alerts(env_dir: Path, scrape_seconds: float) -> None:
    """Write the files of Prometheus and Alertmanager for this environment into `prometheus` in its folder.

    These are `rules.yml`, `prometheus.yml` and `alertmanager.yml`, from the settings and `objectives.yml`. If anything
    there is wrong, it reports all of it with lines and changes no file. Reload both servers afterwards. See
    docs/alerts.md.
    """
    from pipeline.health.alerting.files import write
    from pipeline.health.alerting.objectives import read

    if not env_dir.is_dir():
        raise Refused(f"There is no folder {env_dir}. Give the one of the environment with --env-dir.")
    settings, paths = load(env_dir)
    token = settings.alerts.token_file
    if token and not Path(token).is_file():  # Alertmanager may run elsewhere, so that it may be there
        say(f"alerts.token_file: {token} is not here. Alertmanager sends nothing until it can read that file.")
    for file in write(settings, paths, scrape_seconds):
        say(str(file))
    for each in read(paths.root):
        seconds = settings.metrics.latency_objective_seconds if each.latency_seconds is None else each.latency_seconds
        say(f"class {each.name}: {each.share * 100:g} % of {each.days:g} days within {seconds:g} s")
