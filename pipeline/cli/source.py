"""The commands `turnout source …`: what the source holds."""

from pathlib import Path

import click

from pipeline.cli.context import load_with_source
from pipeline.cli.options import source_option
from pipeline.terminal import say_json, say_lines


@click.command("probe")
@source_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def probe_source(env_dir: Path, source: str | None, as_json: bool) -> None:
    """Look at up to a hundred of the source's newest records, and propose settings that fit them.

    Prints how many look like turnout's wrapper, like Confluent's or AWS Glue's framing with which schema ids, or like
    something else, and lines for turnout.toml. Nothing of what records hold is printed but schema ids and header names.
    Reads without a consumer group and commits nothing. Check the proposal: bytes may look like a framing by chance.
    """
    from pipeline.ingest.source_probe import describe, probe
    from pipeline.ingest.sources.supported import open_source

    settings, paths = load_with_source(env_dir, source)
    report = probe(open_source(settings.source, paths.landing))
    if as_json:
        say_json(report.as_dict())
    else:
        say_lines("\n".join(describe(report)))
