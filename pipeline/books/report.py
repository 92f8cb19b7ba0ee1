"""Tells a balance to people (a table) and to machines (JSON); `turnout verify` calls `run`."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, Final

import click

from pipeline.books.balance import FAULTS, Balance, GameBalance, verify
from pipeline.books.sources import Behind, Sources
from pipeline.books.values import Values, Wanted
from pipeline.settings import Paths

_GAMES_SHOWN: Final = 20
_SHOWN: Final = ("bronze_rows", "landed", "quarantined", "pending", *FAULTS)
_NOTES: Final = ("stale_twins", "quarantine_copies", "ahead", "retired")


def run(
    paths: Paths,
    environment: str,
    as_json: bool = False,
    complete: bool = False,
    *,
    generations: Mapping[str, int] | None = None,
    retired: Collection[str] = (),
    wanted: Wanted | None = None,
    known: Sources | None = None,
) -> int:
    """Verify an environment, print the result and return the exit code: 0 it adds up, 1 it does not.

    Args:
        paths: where the environment keeps its tables.
        environment: its name.
        as_json: print one JSON document instead of a table.
        complete: also fail when rows are still pending.
        generations: see `balance.verify`.
        retired: likewise.
        wanted: likewise.
        known: likewise.

    Raises:
        Refused: nothing is ingested yet, or a table cannot be read.
    """
    balance = verify(paths, environment, generations, retired, wanted, known)
    if as_json:
        click.echo(json.dumps(as_dict(balance), ensure_ascii=False))
    else:
        click.echo(render(balance, complete=complete))
    return 0 if (balance.complete if complete else balance.ok) else 1


def as_dict(balance: Balance) -> dict[str, Any]:
    """Return the balance as plain values for JSON: the totals by name, `ok`, `by_reason` and `problems`."""
    return {
        **asdict(balance.totals),
        "games": _game_count(balance),
        "ok": balance.ok,
        "complete": balance.complete,
        "by_reason": dict(balance.by_reason),
        "problems": [asdict(problem) for problem in balance.problems],
        "bronze_version": balance.bronze_version,
        "duplicated_games": _doubled(balance),
        **({} if balance.behind is None else _source_as_dict(balance.behind)),
        **({} if balance.values is None else _values_as_dict(balance.values)),
    }


def _source_as_dict(found: Behind) -> dict[str, Any]:
    return {
        "behind_source": found.records,
        "source_problems": list(found.problems),
        "source_not_compared": list(found.not_compared),
    }


def _values_as_dict(found: Values) -> dict[str, Any]:
    return {
        "values_compared": found.compared,
        "value_mismatches": found.mismatches,
        "value_rows": found.rows,
        "value_sample": found.sample,
        "value_seconds": round(found.seconds, 3),
        "value_mismatches_by_game": dict(found.by_game),
        "value_problems": [asdict(each) for each in found.named],
        "quarantined_decodable": dict(found.decodable),
        "quarantined_undecodable": dict(found.undecodable),
    }


def render(balance: Balance, *, complete: bool = False) -> str:
    """Return the balance as text: the totals, then the games that are not in balance, worst first.

    Args:
        balance: what to tell.
        complete: pending rows count as out of balance too.
    """
    totals = balance.totals
    lines = [f"{'games':<18}{_game_count(balance):>14,}"]
    lines += [f"{_label(name):<18}{getattr(totals, name):>14,}" for name in _SHOWN]
    lines += [
        f"{_label(name):<18}{getattr(totals, name):>14,}  (for information)" for name in _NOTES if getattr(totals, name)
    ]
    lines += [f"  quarantined: {reason:<24}{rows:>14,}" for reason, rows in balance.by_reason.items()]
    if balance.behind is not None:
        lines += _source_lines(balance.behind)
    if balance.values is not None:
        lines += _value_lines(balance.values)
    wrong = [game for game in balance.games if _is_wrong(game, complete=complete)]
    wrong.sort(key=lambda game: (-game.counts.faults, -game.counts.pending, game.game_key))
    if wrong:
        lines += ["", f"{len(wrong)} game(s) not in balance:"]
        lines += [f"  {game.game_key}: {_faults(game, complete=complete)}" for game in wrong[:_GAMES_SHOWN]]
    if len(wrong) > _GAMES_SHOWN:
        lines.append(f"  … and {len(wrong) - _GAMES_SHOWN} more")
    if balance.problems:
        lines += ["", "First places (game, seq, pos):"]
    for problem in balance.problems:
        place = f"{problem.game_key}, {_place(problem.seq)}, {_place(problem.pos)}"
        lines.append(f"  {_label(problem.kind)}: {place}: {problem.detail}")
    if doubled := _doubled(balance):
        more = f" and {len(doubled) - _GAMES_SHOWN} more" if len(doubled) > _GAMES_SHOWN else ""
        games = " ".join(doubled[:_GAMES_SHOWN])
        lines += ["", f"To remove second copies, one commit per table: `turnout repair dedupe {games}`{more}"]
    return "\n".join([*lines, "", _verdict(balance, complete=complete)])


def _source_lines(found: Behind) -> list[str]:
    """Return what bronze lacks of its source, and what could not be compared."""
    number = "not compared" if found.records is None else f"{found.records:,}"
    return [
        f"{'behind source':<18}{number:>14}",
        *(f"  {each}" for each in found.problems),
        *(f"  not compared: {each}" for each in found.not_compared),
    ]


def _value_lines(found: Values) -> list[str]:
    """Return what was found of values: how many were compared, where they differ, and what quarantine holds."""
    which = "every landed row" if found.sample is None else f"a sample: at most {found.sample:,} rows of each game"
    speed = f"{found.rows:,} rows, {found.rows / max(found.seconds, 0.001):,.0f} a second"
    lines = [
        f"{'values compared':<18}{found.compared:>14,}  ({which}; {speed})",
        f"{'value mismatches':<18}{found.mismatches:>14,}",
    ]
    for reason in sorted({*found.decodable, *found.undecodable}):
        could, could_not = found.decodable.get(reason, 0), found.undecodable.get(reason, 0)
        lines.append(f"  quarantined as {reason}: {could:,} would decode with today's schemas, {could_not:,} would not")
    if found.decodable:
        lines.append("  `turnout repair replay` lands those that would decode.")
    if found.named:
        lines += ["", "First values that differ (game, seq, pos, column):"]
    for each in found.named:
        at = f"{each.game_key}, {each.seq}, {each.pos}, {each.column or 'the whole row'}"
        lines.append(f"  {at}: expected {each.expected}, found {each.found}")
    return lines


def _doubled(balance: Balance) -> list[str]:
    """Return the keys of the games with rows that stand more than once in their table."""
    return [game.game_key for game in balance.games if game.is_game and game.counts.duplicated]


def _game_count(balance: Balance) -> int:
    return sum(game.is_game for game in balance.games)


def _is_wrong(game: GameBalance, *, complete: bool) -> bool:
    return game.counts.faults > 0 or (complete and game.counts.pending + game.counts.ahead > 0)


def _faults(game: GameBalance, *, complete: bool) -> str:
    names = (*FAULTS, "pending", "ahead") if complete else FAULTS
    found = [f"{_label(name)} {getattr(game.counts, name):,}" for name in names if getattr(game.counts, name)]
    cursor = "no cursor" if game.cursor is None else f"cursor {game.cursor}"
    return f"{', '.join(found)} ({cursor})"


def _verdict(balance: Balance, *, complete: bool) -> str:
    if not balance.ok:
        return "NOT OK: the books do not add up. See docs/verify.md for what each line means and what to do."
    if complete and not balance.complete:
        return "NOT COMPLETE: nothing is wrong, but rows are still to come. Let the streams run on, then verify again."
    if balance.complete and balance.totals.retired:
        rows = f"{balance.totals.retired:,} row(s) of retired games, which wait in bronze"
        return f"OK: every row of bronze is in its game's table or in quarantine, exactly once, but {rows}."
    if balance.complete and balance.values is not None:
        return "OK: every row of bronze is in its game's table or in quarantine, once, and no value differs."
    if balance.complete:
        return "OK: every row of bronze is in its game's table or in quarantine, exactly once."
    return f"OK: nothing is lost, doubled or misrouted; {balance.totals.pending:,} row(s) are still to come."


def _label(name: str) -> str:
    return name.replace("_", " ")


def _place(number: int | None) -> str:
    return "-" if number is None else str(number)
