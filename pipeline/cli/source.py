"""The commands `turnout source …`: what the source holds."""

from pathlib import Path

import click

from pipeline.base.errors import Refused
from pipeline.base.terminal import say_json, say_lines
from pipeline.cli.context import load_with_source
from pipeline.cli.options import source_option


@click.command("probe")
@source_option()
@click.option("--name", help="One of the sources of `[sources.NAME]`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def probe_source(env_dir: Path, source: str | None, name: str | None, as_json: bool) -> None:
    """Look at up to a hundred of the source's newest records, and propose settings that fit them.

    Prints how many look like turnout's wrapper, like Confluent's or AWS Glue's framing with which schema ids, or like
    something else, and lines for turnout.toml. Nothing of what records hold is printed but schema ids and header names.
    Reads without a consumer group and commits nothing. Check the proposal: bytes may look like a framing by chance.
    """
    from pipeline.data.ingest.source_probe import describe, probe
    from pipeline.data.ingest.sources.supported import configured_source, open_source

    settings, paths = load_with_source(env_dir, source)
    if name is not None and name not in settings.sources:
        raise Refused(
            f"The settings have no source {name!r}. They have: {', '.join(sorted(settings.sources)) or 'one'}."
        )
    of = configured_source(settings, paths) if name is None else open_source(settings.sources[name], paths.landing)
    report = probe(of)
    if as_json:
        say_json(report.as_dict())
    else:
        table, file = "source" if name is None else f"sources.{name}", paths.settings_file
        is_there = f"[{table}]" in (file.read_text() if file.exists() else "")
        say_lines("\n".join(describe(report, table, is_there=is_there)))
