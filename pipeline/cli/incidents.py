"""The command `turnout incidents`, and what `turnout status` says of incidents."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from sqlalchemy import Engine

from pipeline.base.terminal import say, say_json
from pipeline.base.texts import in_utc
from pipeline.cli.context import CommandContext
from pipeline.health.incidents.incidents import Incident
from pipeline.health.verdicts.upkeep import duration

if TYPE_CHECKING:
    from pipeline.health.facts.fleet import Fleet
    from pipeline.store.incidents import LastLook  # starting a command imports no table

_MOST_GAMES: Final = 5  # of an incident that are named in a line


@click.command("incidents")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def incidents(env_dir: Path, as_json: bool) -> None:
    """Print the open incidents, then those that ended within the last day.

    Games with one cause at one time are one incident: see docs/causes.md. The controller judges causes, or ingest where
    no controller runs. JSON: `judged` with `by`, `at`, `age_seconds` and `is_stale`, null before the first look;
    `incidents`, each with `incident_id`, `cause`, `title`, `evidence`, `excludes`, `action` with `label`, `page` and
    `query`, `advice`, `runbook`, `games` by key, `group`, `since`, `ended_at`, `outlook` and `tone` (`bad`, `late` or
    `recovering`). Unknown values are null.
    """
    from pipeline.health.facts.fleet import read_fleet

    context = CommandContext(env_dir)
    heartbeat_seconds = context.settings.metrics.heartbeat_seconds
    found = read(context.engine, read_fleet(context.engine, heartbeat_seconds=heartbeat_seconds))
    if as_json:
        say_json(found)
        return
    for line in lines(found):
        say(line)


def read(engine: Engine, fleet: "Fleet") -> dict[str, Any]:
    """Return incidents and who judged them last, as JSON.

    That the control store takes no writes is computed of the fleet, as nobody can keep it.
    """
    from pipeline.health.facts.incidents import read_incidents
    from pipeline.health.incidents.away import with_computed
    from pipeline.store.incidents import read_last_look

    look = read_last_look(engine)
    found = with_computed(read_incidents(engine), fleet.judgement, fleet.read_at)
    return {"judged": _judged(look), "incidents": [describe(each) for each in found]}


def describe(incident: Incident) -> dict[str, Any]:
    """Return an incident as JSON."""
    finding = incident.finding
    action = finding.action
    return {
        "incident_id": incident.incident_id, "cause": str(finding.cause), "title": finding.title,
        "evidence": list(finding.evidence), "excludes": list(finding.excludes),
        "action": None if action is None else {
            "label": action.label, "page": action.page, "query": dict(action.query),
        },
        "advice": finding.advice, "runbook": finding.runbook,
        "games": list(incident.games), "group": incident.group, "since": incident.since,
        "ended_at": incident.ended_at, "outlook": incident.outlook, "tone": incident.tone,
    }  # fmt: skip


def lines(found: dict[str, Any], *, brief: bool = False) -> list[str]:
    """Return incidents for people; where `brief`, a line for each open one."""
    judged, listed = found["judged"], found["incidents"]
    still_open = [each for each in listed if each["ended_at"] is None]
    if judged is None and not listed:
        return ["causes were never judged: neither a controller nor ingest has run"]
    said = [_sentence(still_open)]
    if judged is not None and judged["is_stale"]:
        ago = duration(judged["age_seconds"])
        said = [f"{said[0]}, as last judged {ago} ago: neither a controller nor ingest judges causes now"]
    for each in still_open:
        said += _incident(each)[: 1 if brief else None]
    ended = [each for each in listed if each["ended_at"] is not None]
    if ended and not brief:
        said.append(f"{len(ended)} ended within the last day")
        said += [f"  {in_utc(each['ended_at'], '%H:%M')} {each['cause']}: {each['title']}" for each in ended]
    return said


def _sentence(still_open: list[dict[str, Any]]) -> str:
    if not still_open:
        return "no open incident"
    return f"{len(still_open)} open incident{'' if len(still_open) == 1 else 's'}"


def _incident(each: dict[str, Any]) -> list[str]:
    since = in_utc(each["since"], "%H:%M")
    tail = f"; {each['outlook']}" if each["outlook"] else ""
    said = [f"  {each['tone']:<10} {each['cause']}: {each['title']}, since {since} UTC{tail}"]
    said += [f"      {text}" for text in each["evidence"]]
    said += [f"      not: {text}" for text in each["excludes"]]
    named, left = ", ".join(each["games"][:_MOST_GAMES]), len(each["games"]) - _MOST_GAMES
    if named:
        said.append(f"      games: {named}{f' and {left:,} more' if left > 0 else ''}")
    steps = [each["advice"]] if each["advice"] else []
    steps += [next_step(each["action"])] if each["action"] else []
    steps += [f"docs/runbooks/{each['runbook']}.md"] if each["runbook"] else []
    return [*said, *([f"      next: {', or '.join(steps)}"] if steps else [])]


def next_step(action: dict[str, Any]) -> str:
    """Return a page's action as a command; its label on the page where no command does it."""
    query = action["query"]
    games = query.get("games")
    game, group = query.get("game") or (" ".join(games) if isinstance(games, tuple) else games), query.get("steer")
    commands = {
        "repairs": f"repair {query.get('repair')} {game}" if game and query.get("repair") else None,
        "schemas": f"schemas show {game}" if game else None,
        "game": _of_game(action["label"], game, query) if game else None,
        "groups": f"groups {query['do']} {group}" if query.get("do") else "groups propose",
        "operations": f"ops show {query['operation']}" if query.get("operation") else "ops list",
    }
    command = commands.get(action["page"])
    return action["label"] if command is None else f"`turnout {command}`"


def _of_game(label: str, game: str, query: dict[str, str]) -> str:
    if query.get("rows") == "refused":
        return f"quarantine list --game {game}"
    return f"resume {game}" if label.startswith("Resume") else f"repair actions {game}"


def _judged(look: "LastLook | None") -> dict[str, Any] | None:
    if look is None:
        return None
    return {"by": look.kept_by, "at": look.looked_at, "age_seconds": look.age_seconds, "is_stale": look.is_stale}
