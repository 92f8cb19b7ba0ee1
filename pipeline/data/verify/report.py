"""Reports a balance as text and as JSON; `turnout verify` calls `run`."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from pipeline.base.names import plain
from pipeline.base.terminal import say, say_lines
from pipeline.base.texts import first_lines, join_limited
from pipeline.data.verify.balance import FAULTS, Balance, GameBalance
from pipeline.data.verify.held import HeldRecords
from pipeline.data.verify.sources import Lagging
from pipeline.data.verify.values import Values

NOT_COMPARED: Final = 3
"""The exit code where no fault was found, but something that `--source` asks for could not be compared."""

_GAMES_SHOWN: Final = 20
_SHOWN: Final = ("bronze_rows", "landed", "quarantined", "pending", *FAULTS)
_NOTES: Final = ("stale_twins", "quarantine_copies", "ahead", "accepted_gaps", "retired")


def run(
    balance: Balance, *, as_json: bool = False, complete: bool = False, repairable: Collection[str] | None = None
) -> int:
    """Print a balance and return the exit code: 0 without faults, 1 with faults, 3 if brokers were not compared.

    Args:
        balance: the result of `balance.verify`.
        as_json: print one JSON document instead of a table.
        complete: also fail when rows are still pending.
        repairable: see `render`.
    """
    if as_json:
        say(json.dumps(as_dict(balance)))
    else:
        say_lines(render_balance(balance, complete=complete, repairable=repairable))
    if balance.ok and balance.not_compared:
        return NOT_COMPARED
    return 0 if (balance.complete if complete else balance.ok) else 1


def as_dict(balance: Balance) -> dict[str, Any]:
    """Return the balance for JSON: the totals by name, `ok`, `by_reason` and `problems`."""
    return {
        **asdict(balance.totals),
        "games": _game_count(balance),
        "ok": balance.ok,
        "complete": balance.complete,
        "by_reason": dict(balance.by_reason),
        "problems": [asdict(problem) for problem in balance.problems],
        "bronze_version": balance.bronze_version,
        "duplicated_games": _doubled(balance),
        "is_ingested": balance.is_ingested,
        "replayable": dict(balance.replayable),
        **({} if balance.lagging is None else _source_as_dict(balance.lagging)),
        **({} if balance.held is None else _held_as_dict(balance.held)),
        **({} if balance.values is None else _values_as_dict(balance.values, balance.totals.landed)),
    }


def _source_as_dict(lagging: Lagging) -> dict[str, Any]:
    return {
        "behind_source": lagging.records,
        "source_problems": list(lagging.problems),
        "source_not_compared": list(lagging.not_compared),
    }


def _held_as_dict(held: HeldRecords) -> dict[str, Any]:
    return {
        "records_compared": held.compared,
        "records_other": held.other,
        "records_lacked": held.lacked,
        "record_problems": list(held.problems),
        "records_not_compared": list(held.not_compared),
    }


def _values_as_dict(values: Values, landed: int) -> dict[str, Any]:
    return {
        "values_compared": values.compared,
        "value_mismatches": values.mismatches,
        "value_rows": values.rows,
        "value_rows_landed": landed,
        "value_sample": values.sample,
        "value_seconds": round(values.seconds, 3),
        "value_mismatches_by_game": dict(values.by_game),
        "value_problems": [asdict(each) for each in values.named],
        "quarantined_decodable": dict(values.decodable),
        "quarantined_undecodable": dict(values.undecodable),
    }


def render_balance(balance: Balance, *, complete: bool = False, repairable: Collection[str] | None = None) -> str:
    """Return the balance as text: the totals, then the games that are not in balance, worst first.

    Args:
        balance: the balance to report.
        complete: pending rows count as out of balance too.
        repairable: the keys of games that repairs take, all where None.
    """
    totals = balance.totals
    lines = [f"{'games':<18}{_game_count(balance):>14,}"]
    lines += [f"{_label(name):<18}{getattr(totals, name):>14,}" for name in _SHOWN]
    lines += [
        f"{_label(name):<18}{getattr(totals, name):>14,}  (for information)" for name in _NOTES if getattr(totals, name)
    ]
    lines += [f"  quarantined: {plain(reason):<24}{rows:>14,}" for reason, rows in balance.by_reason.items()]
    if balance.replayable:
        lines += _replayable_lines(balance.replayable)
    if balance.lagging is not None:
        lines += _source_lines(balance.lagging)
    if balance.held is not None:
        lines += _held_lines(balance.held)
    if balance.values is not None:
        lines += _value_lines(balance.values, balance.totals.landed)
    wrong = [game for game in balance.games if _is_wrong(game, complete=complete)]
    wrong.sort(key=lambda game: (-game.counts.faults, -game.counts.pending, game.game_key))
    if wrong:
        lines += ["", f"{len(wrong)} game(s) not in balance:"]
        faults = first_lines(
            wrong, _GAMES_SHOWN, lambda game: f"{plain(game.game_key)}: {_faults(game, complete=complete)}"
        )
        lines += [f"  {each}" for each in faults]
    if balance.problems:
        lines += ["", "First places (game, seq, pos):"]
    for problem in balance.problems:
        place = f"{plain(problem.game_key)}, {_place(problem.seq)}, {_place(problem.pos)}"
        lines.append(f"  {_label(problem.kind)}: {place}: {plain(problem.detail)}")
    if doubled := _doubled(balance):
        lines += ["", *_dedupe_lines(doubled, doubled if repairable is None else repairable)]
    return "\n".join([*lines, "", _verdict(balance, complete=complete) + _unknown(balance) + _to_replay(balance)])


def _replayable_lines(replayable: Mapping[str, int]) -> list[str]:
    """Return the number of refused rows whose schema is registered today, and the command that lands them."""
    ordered = sorted(replayable, key=lambda key: (-replayable[key], key))
    shown = join_limited(ordered, _GAMES_SHOWN, lambda key: f"{plain(key)} {replayable[key]:,}")
    games = "" if len(ordered) > _GAMES_SHOWN else f" {' '.join(ordered)}"
    return [
        f"{'replayable':<18}{sum(replayable.values()):>14,}  (refused, but their schema is registered today)",
        f"  replayable: {shown}",
        f"  `turnout repair replay{games}` lands those that decode.",
    ]


def _to_replay(balance: Balance) -> str:
    if not balance.replayable:
        return ""
    return f" {sum(balance.replayable.values()):,} row(s) in quarantine can be replayed: see above."


def _source_lines(lagging: Lagging) -> list[str]:
    """Return the records that bronze lacks of its source, and the parts that were not compared."""
    number = "not compared" if lagging.records is None else f"{lagging.records:,}"
    return [
        f"{'behind source':<18}{number:>14}",
        *(f"  {plain(each)}" for each in lagging.problems),
        *(f"  not compared: {plain(each)}" for each in lagging.not_compared),
    ]


def _held_lines(held: HeldRecords) -> list[str]:
    """Return the result of the comparison with what brokers still hold."""
    return [
        f"{'records compared':<18}{held.compared:>14,}  (time, key and value, with what the brokers still hold)",
        f"{'other records':<18}{held.other:>14,}",
        f"{'lacked records':<18}{held.lacked:>14,}",
        *(f"  {plain(each)}" for each in held.problems),
        *(["  A landing table is no broker: its rows are compared by file alone."] if held.by_file else []),
        *(f"  not compared: {plain(each)}" for each in held.not_compared),
    ]


def _value_lines(values: Values, landed: int) -> list[str]:
    """Return the result of the value check: rows compared, differences, and quarantined rows that decode today."""
    which = "every landed row" if values.sample is None else f"a sample: at most {values.sample:,} rows of each game"
    speed = f"{values.rows:,} of {landed:,} rows, {values.rows / max(values.seconds, 0.001):,.0f} a second"
    lines = [
        f"{'values compared':<18}{values.compared:>14,}  ({which}; {speed})",
        f"{'value mismatches':<18}{values.mismatches:>14,}",
    ]
    for reason in sorted({*values.decodable, *values.undecodable}):
        could, could_not = values.decodable.get(reason, 0), values.undecodable.get(reason, 0)
        lines.append(
            f"  quarantined as {plain(reason)}: {could:,} would decode with today's schemas, {could_not:,} would not"
        )
    if values.decodable:
        lines.append("  `turnout repair replay` lands those that would decode.")
    if values.named:
        lines += ["", "First values that differ (game, seq, pos, column):"]
    for each in values.named:
        at = f"{plain(each.game_key)}, {each.seq}, {each.pos}, {plain(each.column or 'the whole row')}"
        lines.append(f"  {at}: expected {each.expected}, found {each.found}")
    return lines


def _doubled(balance: Balance) -> list[str]:
    """Return the keys of games with doubled rows."""
    return [game.game_key for game in balance.games if game.is_game and game.counts.duplicated]


def _dedupe_lines(doubled: Sequence[str], repairable: Collection[str]) -> list[str]:
    """Return the command that removes second copies, and the games that it would refuse."""
    taken, others = ([key for key in doubled if (key in repairable) is expected] for expected in (True, False))
    lines = []
    if taken:
        keys, left = " ".join(taken[:_GAMES_SHOWN]), len(taken) - _GAMES_SHOWN
        command = f'`turnout repair dedupe {keys} --reason "doubled rows"`{f" and {left} more" if left > 0 else ""}'
        lines.append(f"To remove second copies, one commit per table: {command}")
    if others:
        keys = join_limited(others, _GAMES_SHOWN, plain)
        lines.append(f"Doubled, but retired, unknown, or without a schema: {keys}. Dedupe refuses these.")
        lines.append("Run `turnout games restore` for retired games, and register a schema where there is none.")
    return lines


def _game_count(balance: Balance) -> int:
    return sum(game.is_game for game in balance.games)


def _is_wrong(game: GameBalance, *, complete: bool) -> bool:
    return game.counts.faults > 0 or (complete and game.counts.pending + game.counts.ahead > 0)


def _faults(game: GameBalance, *, complete: bool) -> str:
    names = (*FAULTS, "pending", "ahead") if complete else FAULTS
    faults = [f"{_label(name)} {getattr(game.counts, name):,}" for name in names if getattr(game.counts, name)]
    cursor = "no cursor" if game.cursor is None else f"cursor {game.cursor}"
    return f"{', '.join(faults)} ({cursor})"


def _verdict(balance: Balance, *, complete: bool) -> str:
    if not balance.ok:
        return "NOT OK: faults were found, see above. docs/verify.md explains each line and its fix."
    if not balance.is_ingested:
        verdict = "NOT COMPLETE" if complete else "OK, but nothing is proved"
        return f"{verdict}: nothing was ingested, bronze has no commit. Start ingest, then verify again."
    if balance.not_compared:
        return "NOT COMPARED: no faults in the tables, but brokers did not give all records: see above. Verify again."
    if complete and not balance.complete:
        return "NOT COMPLETE: no faults, but rows are still pending. Let the streams run, then verify again."
    if balance.complete and balance.totals.retired:
        rows = f"{balance.totals.retired:,} row(s) of retired games, which wait in bronze"
        return f"OK: every row of bronze is in its game's table or in quarantine, exactly once, but {rows}."
    if balance.complete and balance.values is not None:
        which = "no value" if balance.values.sample is None else f"no value of the {balance.values.rows:,} sampled rows"
        return f"OK: every row of bronze is in its game's table or in quarantine, once, and {which} differs."
    if balance.complete:
        return "OK: every row of bronze is in its game's table or in quarantine, exactly once."
    return f"OK: nothing is lost, doubled or misrouted; {balance.totals.pending:,} row(s) are still pending."


def _unknown(balance: Balance) -> str:
    if not balance.ok or balance.lagging is None or balance.lagging.records is not None:
        return ""
    return " Bronze was not compared with its source: see above."


def _label(name: str) -> str:
    return name.replace("_", " ")


def _place(number: int | None) -> str:
    return "-" if number is None else str(number)
