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

    def asked(settings: "Settings", paths: "Paths") -> "list[Finding]":
        storage = try_storage(paths)
        if any(each.state == "missing" for each in storage):
            return [*storage, *ask_registries(settings)]
        return [*storage, *look_at_logs(paths), *ask_registries(settings), *ask_catalog(settings, paths)]

    sys.exit(checks.run(env_dir, as_json, asked))


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


def look_at_logs(paths: "Paths") -> "list[Finding]":
    """Look for commits of other writers among the newest of each table in a bucket: nobody else may write there."""
    from pipeline.delta.foreign import newest_in
    from pipeline.setup.doctor import Finding

    if not paths.storage:
        return []
    tables = (paths.bronze, paths.quarantine, *paths.metrics.folders(), *paths.tables.folders())
    found, unread = newest_in(tables)
    remedy = "revoke MODIFY from its user; see docs/storage.md"
    findings = [
        Finding("foreign commits", f"table {place.name}", "optional", f"another writer made {commit}", remedy)
        for place, commit in found
    ]
    if unread:
        detail = f"{len(unread)} logs could not be read: {unread[0]}"
        findings.append(Finding("foreign commits", "logs", "optional", detail, "run turnout verify"))
    return findings or [Finding("foreign commits", "foreign commits", "ok", "none among the newest of each table")]


def ask_catalog(settings: "Settings", paths: "Paths") -> "list[Finding]":
    """Ask the catalog of a workspace whether its tables of games are ours."""
    from pipeline.setup.catalog_checks import catalog_checks
    from pipeline.setup.doctor import Finding, State

    states: dict[str, State] = {"ok": "ok", "refused": "missing", "untried": "optional", "unknown": "optional"}
    keys = [each.name for each in paths.tables.folders()]
    return [
        Finding("catalog", each.subject, states[each.outcome], each.detail, each.remedy)
        for each in catalog_checks(settings, paths, keys)
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
