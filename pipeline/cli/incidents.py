"""The command `turnout incidents`, and what `turnout status` says of incidents."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from pipeline.api import fleet
from pipeline.api import incidents as queries
from pipeline.api.incidents import Action, IncidentReport, IncidentsReport
from pipeline.base.terminal import say, say_json
from pipeline.base.texts import in_utc
from pipeline.cli.context import CommandContext
from pipeline.health.verdicts.upkeep import duration

_MOST_GAMES: Final = 5  # of an incident that are named in a line


@click.command("incidents")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def incidents(env_dir: Path, as_json: bool) -> None:
    """Print the open incidents, then those that ended within the last day.

    Games with one cause at one time are one incident: see docs/causes.md. The controller judges causes, or ingest where
    no controller runs. JSON: `judged` with `by`, `at`, `age_seconds` and `is_stale`, null before the first look;
    `incidents`, each with `incident_id`, `cause`, `title`, `evidence`, `excludes`, `action` with `label`, `page` and
    `query`, `advice`, `runbook`, `games` by key, `group`, `since`, `ended_at`, `outlook`, `tone` (`bad`, `late` or
    `recovering`), `phase` (`open`, `acting`, `recovering` or `ended`), `acting` with `by`, `does` and `since`, and
    `progress`, which says who is at it or when it is level. Unknown values are null.
    """
    environment = CommandContext(env_dir).environment
    found = queries.read(environment, fleet.read(environment))
    if as_json:
        say_json(found)
        return
    for line in lines(found):
        say(line)


def lines(found: IncidentsReport, *, brief: bool = False) -> list[str]:
    """Return incidents for people; where `brief`, a line for each open one."""
    judged, listed = found.judged, found.incidents
    still_open = [each for each in listed if each.ended_at is None]
    if judged is None and not listed:
        return ["causes were never judged: neither a controller nor ingest has run"]
    said = [_sentence(len(still_open))]
    if judged is not None and judged.is_stale:
        ago = duration(judged.age_seconds)
        said = [f"{said[0]}, as last judged {ago} ago: neither a controller nor ingest judges causes now"]
    for each in still_open:
        said += _incident(each)[: 1 if brief else None]
    ended = [(each, each.ended_at) for each in listed if each.ended_at is not None]
    if ended and not brief:
        said.append(f"{len(ended)} ended within the last day")
        said += [f"  {in_utc(at, '%H:%M')} {each.cause}: {each.title}" for each, at in ended]
    return said


def _sentence(still_open: int) -> str:
    if not still_open:
        return "no open incident"
    return f"{still_open} open incident{'' if still_open == 1 else 's'}"


def _incident(each: IncidentReport) -> list[str]:
    since = in_utc(each.since, "%H:%M")
    progress = each.progress or each.outlook
    tail = f"; {progress}" if progress else ""
    said = [f"  {each.tone:<10} {each.cause}: {each.title}, since {since} UTC{tail}"]
    said += [f"      {text}" for text in each.evidence]
    said += [f"      not: {text}" for text in each.excludes]
    named, left = ", ".join(each.games[:_MOST_GAMES]), len(each.games) - _MOST_GAMES
    if named:
        said.append(f"      games: {named}{f' and {left:,} more' if left > 0 else ''}")
    steps = [each.advice] if each.advice else []
    steps += [next_step(each.action)] if each.action else []
    steps += [f"docs/runbooks/{each.runbook}.md"] if each.runbook else []
    return [*said, *([f"      next: {', or '.join(steps)}"] if steps else [])]


def next_step(action: Action) -> str:
    """Return a page's action as a command; its label on the page where no command does it."""
    query = {name: value if isinstance(value, str) else " ".join(value) for name, value in action.query.items()}
    game, group = query.get("game") or query.get("games"), query.get("steer")
    commands = {
        "repairs": f"repair {query.get('repair')} {game}" if game and query.get("repair") else None,
        "schemas": f"schemas show {game}" if game else None,
        "game": _of_game(action.label, game, query) if game else None,
        "groups": f"groups {query['do']} {group}" if query.get("do") else "groups propose",
        "operations": f"ops show {query['operation']}" if query.get("operation") else "ops list",
    }
    command = commands.get(action.page)
    return action.label if command is None else f"`turnout {command}`"


def _of_game(label: str, game: str, query: Mapping[str, str]) -> str:
    if query.get("rows") == "refused":
        return f"quarantine list --game {game}"
    return f"resume {game}" if label.startswith("Resume") else f"repair actions {game}"
