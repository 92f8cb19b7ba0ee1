"""`turnout grants drift`: where the catalog is not as turnout keeps it, and what to do about it."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from grants.applying import drift_store
from grants.cli.options import AccessContext
from grants.formats.expiry import parse_until
from grants.planning.drift import Drift, DriftFinding
from pipeline.base.errors import Refused
from pipeline.base.terminal import say, say_json
from pipeline.cli.options import SubmitOptions, submitting


@click.command("drift")
@click.option(
    "--act",
    type=click.Choice(["adopt", "revert", "ignore", "unignore"]),
    help="Act on the findings named by --finding.",
)
@click.option("--finding", "chosen", multiple=True, help="Id of a finding, or the start of it; repeatable.")
@click.option("--until", metavar="DATE", help="With `--act ignore`: until when, by default for 90 days.")
@submitting
def drift(env_dir: Path, act: str | None, chosen: tuple[str, ...], until: str | None, how: SubmitOptions) -> None:
    """Show where the catalog differs now from what turnout granted; or adopt, revert or ignore findings.

    `--act adopt` keeps what is there as granted by turnout, `revert` restores what turnout granted, `ignore` leaves it
    as it is and lists it until its end, and `unignore` has it open again; these two need `--reason`. A finding that
    was gone and comes back is open.
    """
    from grants.planning.drift import intent as about

    if until is not None and act != "ignore":
        raise Refused("--until needs --act ignore.")
    context = AccessContext(env_dir)
    observed = drift_store.read_drift(context.engine, context.catalog(), context.settings.access, context.paths)
    if act is None:
        if chosen:
            raise Refused("--finding needs --act.")
        _show(observed, how)
        return
    findings = [drift_store.find(observed, each) for each in chosen]
    if not findings:
        raise Refused("Name findings with --finding ID (repeatable), or leave out --act to list all.")
    if act in {"ignore", "unignore"}:
        _decide(context, act, findings, until, how)
        return
    reason = how.reason or f"drift: {act}"
    intents = [about(each, "adopt" if act == "adopt" else "revert", reason) for each in findings]
    context.submit(context.prepared(intents), how, reason)


def _decide(
    context: AccessContext, act: str, findings: Sequence[DriftFinding], until: str | None, how: SubmitOptions
) -> None:
    """Ignore findings, or have them open again."""
    end = None if until is None else parse_until(until)
    for each in findings:
        say(f"{drift_store.id_of(each)[:8]}  {each.sentence}", err=how.as_json)
    if not how.dry_run and act == "ignore":
        drift_store.ignore(context.engine, context.settings, findings, context.actor, how.reason, end)
    elif not how.dry_run:
        drift_store.unignore(context.engine, context.settings, findings, context.actor, how.reason)
    if how.as_json:
        say_json({f"{act}d": not how.dry_run, "findings": [_as_dict(each) for each in findings]})


def _show(observed: Drift, how: SubmitOptions) -> None:
    if how.as_json:
        listed = [_as_dict(each) for each in observed.findings]
        missing = [each.full_name for each in observed.unread]
        say_json({"findings": listed, "unread": missing})
        return
    for each in observed.findings:
        left = f"  (ignored: {each.ignored})" if each.ignored is not None else f"  [{', '.join(each.acts)}]"
        say(f"{drift_store.id_of(each)[:8]}  {each.kind:<10} {each.sentence}{left}")
    differences = ", ".join(f"{number} {kind}" for kind, number in sorted(observed.counts.items())) or "no difference"
    unread = f" Not read, so unknown: {len(observed.unread)}." if observed.unread else ""
    say(f"{differences}; {sum(observed.ignored_counts.values())} ignored.{unread}")


def _as_dict(finding: DriftFinding) -> dict[str, Any]:
    ours = finding.entitlement
    return {
        **asdict(finding),
        "entitlement": None if ours is None else ours._asdict(),
        "id": drift_store.id_of(finding),
    }
