"""The command `turnout doctor`: it imports nothing that may be missing."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from pipeline.settings import Paths, Settings
    from pipeline.setup.doctor import Finding

_NOBODYS: Final = b"turnout-doctor"  # a writer that is a name, whose schema no registry has


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(env_dir: Path, as_json: bool) -> None:
    """Print what is installed, what is missing and what to do.

    Changes nothing; where tables are in a bucket it writes a few small files of its own there, and deletes them. Exit
    code 1 if something needed is missing.
    """
    from pipeline.setup import doctor as checks

    sys.exit(checks.run(env_dir, as_json, lambda settings, paths: [*try_storage(paths), *ask_registries(settings)]))


def try_storage(paths: "Paths") -> "list[Finding]":
    """Try the place of the tables where it is a bucket, by files of its own, which are deleted."""
    from pipeline.setup.doctor import Finding
    from pipeline.storage.trial import trials

    if not paths.storage:
        return []
    return [
        Finding(
            "storage",
            f"{each.subject} of {paths.storage}",
            "ok" if not each.remedy else "missing" if each.stops else "optional",
            each.detail,
            each.remedy,
        )
        for each in trials(paths.data)
    ]


def ask_registries(settings: "Settings") -> "list[Finding]":
    """Ask each registry for a schema that nobody has: an answer shows that address and credentials are right."""
    from pipeline.contracts.registries.answers import Away
    from pipeline.contracts.registries.supported import resolvers
    from pipeline.errors import Refused
    from pipeline.registry_settings import generation_of
    from pipeline.setup.doctor import Finding

    try:
        clients = resolvers(settings)
    except Refused as refused:
        return [Finding("registries", "registries", "missing", str(refused), "correct the settings registries.*")]
    found = []
    for name in settings.registries:
        answer = clients[generation_of(settings.registries, name)].resolve(_NOBODYS)
        if isinstance(answer, Away):
            remedy = f"start it, or correct registries.{name}"
            found.append(Finding("registries", f"registry {name}", "missing", answer.detail, remedy))
        else:
            found.append(Finding("registries", f"registry {name}", "ok", "answers"))
    return found
