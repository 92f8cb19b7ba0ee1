"""The command `turnout doctor`: it imports nothing that may be missing."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from pipeline.platforms.local.doctor import DoctorFinding
    from pipeline.settings.tree import Paths, Settings

_NOBODYS: Final = b"turnout-doctor"  # a writer that is a name, whose schema no registry has


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(env_dir: Path, as_json: bool) -> None:
    """Print what is installed, what is missing and what to do.

    Changes nothing; where tables are in a bucket it writes a few small files of its own there, and deletes them. If no
    package is missing it also connects to the control store, asks the brokers for the topics, and asks the registries
    and the catalog. Exit code 1 if something needed is missing.
    """
    from pipeline.platforms.local import doctor as checks

    def asked(settings: "Settings", paths: "Paths") -> "list[DoctorFinding]":
        storage, services = try_storage(paths), [*try_store(settings, paths), *ask_topics(settings)]
        if any(each.state == "missing" for each in storage):
            return [*storage, *services, *ask_registries(settings)]
        return [*storage, *look_at_logs(paths), *services, *ask_registries(settings), *ask_catalog(settings, paths)]

    sys.exit(checks.run(env_dir, as_json, asked))


def try_storage(paths: "Paths") -> "list[DoctorFinding]":
    """Try the place of the tables where it is a bucket, by files of its own, which are deleted."""
    from pipeline.lake.storage.trial import trials
    from pipeline.platforms.local.doctor import DoctorFinding

    if not paths.storage:
        return []
    return [
        DoctorFinding(
            "storage",
            f"{each.subject} of {paths.storage}",
            "ok" if not each.remedy else "missing" if each.stops else "optional",
            each.detail,
            each.remedy,
        )
        for each in trials(paths.data)
    ]


def look_at_logs(paths: "Paths") -> "list[DoctorFinding]":
    """Look for commits of other writers among the newest of each table in a bucket: nobody else may write there."""
    from pipeline.lake.delta.foreign import newest_in
    from pipeline.platforms.local.doctor import DoctorFinding

    if not paths.storage:
        return []
    tables = (paths.bronze, paths.quarantine, *paths.metrics.folders(), *paths.tables.folders())
    found, unread = newest_in(tables)
    remedy = "revoke MODIFY from its user; see docs/storage.md"
    findings = [
        DoctorFinding("foreign commits", f"table {place.name}", "optional", f"another writer made {commit}", remedy)
        for place, commit in found
    ]
    if unread:
        detail = f"{len(unread)} logs could not be read: {unread[0]}"
        findings.append(DoctorFinding("foreign commits", "logs", "optional", detail, "run turnout verify"))
    return findings or [
        DoctorFinding("foreign commits", "foreign commits", "ok", "none among the newest of each table")
    ]


def try_store(settings: "Settings", paths: "Paths") -> "list[DoctorFinding]":
    """Connect to the control store, and change nothing in it. A store that the first command will make is no defect."""
    from sqlalchemy.exc import SQLAlchemyError

    from pipeline.base.errors import Refused, Transient, first_line
    from pipeline.platforms.local.doctor import DoctorFinding
    from pipeline.store.database.engine import find_lack, reach

    topic = "control store"
    try:
        lack = find_lack(settings, paths)
        if lack is None:
            reach(settings, paths)
    except (SQLAlchemyError, ImportError, Refused, Transient) as error:
        detail = f"not reached: {first_line(getattr(error, 'orig', None) or error)}"
        return [DoctorFinding(topic, topic, "missing", detail, "start its database, or correct store.url")]
    return [DoctorFinding(topic, topic, "ok", "answers" if lack is None else f"{lack} yet: the first command makes it")]


def ask_topics(settings: "Settings") -> "list[DoctorFinding]":
    """Ask the brokers of each source for its topics, with the options of the settings."""
    from pipeline.base.errors import Refused, Transient
    from pipeline.platforms.local.doctor import DoctorFinding

    found = []
    for name, source in settings.every_source.items():
        if source.kind != "kafka":
            continue
        from pipeline.data.ingest.sources.topic_observation import observe_topic, observe_topics

        subject = f"topics of source {name}" if name else "topics of the source"
        try:
            seen = observe_topics(source) if source.topics or source.topic_pattern else observe_topic(source)
        except (Refused, Transient) as error:
            found.append(DoctorFinding("topics", subject, "missing", str(error), "see docs/kafka.md"))
            continue
        untried = "not tried: options of the source have no counterpart" if seen is None else "no topic matches yet"
        found.append(DoctorFinding("topics", subject, "ok" if seen else "optional", "described" if seen else untried))
    return found


def ask_catalog(settings: "Settings", paths: "Paths") -> "list[DoctorFinding]":
    """Ask the catalog of a workspace whether its tables of games are ours."""
    from pipeline.platforms.local.catalog_checks import catalog_checks
    from pipeline.platforms.local.doctor import DoctorFinding, State

    states: dict[str, State] = {"ok": "ok", "refused": "missing", "untried": "optional", "unknown": "optional"}
    keys = [each.name for each in paths.tables.folders()]
    return [
        DoctorFinding("catalog", each.subject, states[each.outcome], each.detail, each.remedy)
        for each in catalog_checks(settings, paths, keys)
    ]


def ask_registries(settings: "Settings") -> "list[DoctorFinding]":
    """Ask each registry for a schema that nobody has: an answer shows that address and credentials are right."""
    from pipeline.base.errors import Refused
    from pipeline.data.contracts.registries.answers import Away
    from pipeline.data.contracts.registries.supported import resolvers
    from pipeline.platforms.local.doctor import DoctorFinding
    from pipeline.settings.registries import generation_of

    try:
        clients = resolvers(settings)
    except Refused as refused:
        return [DoctorFinding("registries", "registries", "missing", str(refused), "correct the settings registries.*")]
    found = []
    for name in settings.registries:
        answer = clients[generation_of(settings.registries, name)].resolve(_NOBODYS)
        if isinstance(answer, Away):
            remedy = f"start it, or correct registries.{name}{settings.registries[name].known.hint}"
            found.append(DoctorFinding("registries", f"registry {name}", "missing", answer.detail, remedy))
        else:
            found.append(DoctorFinding("registries", f"registry {name}", "ok", "answers"))
    return found
