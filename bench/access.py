"""`python -m bench.access`: what the matrix, plans, undo and drift cost at 500 games × 60 principals.

Pure computation on a snapshot made from a seed: no catalog, no store. A plan is measured with its fingerprint. Each is
measured several times; the median, least and most are told. See docs/performance.md.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench import machine
from bench.command import keep
from bench.text import milliseconds
from grants.model import Directory, GameTable, Observed, Principal, Securable, folded
from grants.observing.matrix import matrix
from grants.observing.resolver import Resolver
from grants.planning.change_set import simulate
from grants.planning.drift import drift
from grants.planning.entitlements import NOTHING, AccessIntent, ManagedAccess
from grants.planning.plan import AccessPlan, plan
from grants.planning.undo import undo

SCHEMA: Final = Securable(("turnout", "games"))
_USERS_PER_GROUP: Final = 3  # groups of each user
_FILLED: Final = 0.2  # of the cells


def observed(games: int, principals: int, filled: float, seed: int = 1) -> tuple[Observed, list[str]]:
    """Return a snapshot of `games` games and `principals` principals, a third nested groups, and their names."""
    chance = random.Random(seed)
    groups = [f"group {number}" for number in range(max(1, principals // 3))]
    users = [f"user{number}@example.com" for number in range(principals - len(groups))]
    names = [*users, *groups]
    known = {folded(name): Principal(name, "user" if "@" in name else "group") for name in names}
    of = {folded(user): frozenset(chance.sample(groups, min(_USERS_PER_GROUP, len(groups)))) for user in users}
    of |= {groups[n]: frozenset(chance.sample(groups[:n], min(n, 2))) for n in range(1, len(groups))}
    tables = {
        key: GameTable(key, Securable((*SCHEMA.path, key)), f"id of {key}", "pipeline")
        for key in (f"game_{number:04}" for number in range(games))
    }
    use = {name: frozenset({"USE_SCHEMA"}) for name in groups[:5]}
    direct = {SCHEMA: use, Securable(SCHEMA.path[:1]): {name: frozenset({"USE_CATALOG"}) for name in use}}
    direct |= {
        each.securable: {name: frozenset({"SELECT"}) for name in names if chance.random() < filled}
        for each in tables.values()
    }
    return Observed(SCHEMA, tables, dict.fromkeys(direct, "pipeline"), direct, Directory(known, of), 0.0), names


def measured(runs: int, work: Callable[[], Any]) -> tuple[list[float], Any]:
    """Return the wall seconds of each run, and what the last one returned."""
    took, result = [], None
    for _ in range(runs):
        begun = time.perf_counter()
        result = work()
        took.append(time.perf_counter() - begun)
    return took, result


def measure(games: int, principals: int, runs: int) -> dict[str, list[float]]:
    """Return the wall seconds of each thing, run by run."""
    found: dict[str, list[float]] = {}

    def timed(what: str, work: Callable[[], Any]) -> Any:
        found[what], result = measured(runs, work)
        return result

    def planned(snapshot: Observed, intents: Sequence[AccessIntent], managed: ManagedAccess) -> AccessPlan:
        made = plan(snapshot, intents, managed, 0.0)
        if not made.fingerprint:
            raise AssertionError("what is shown is pinned to it, so it belongs to the time of a plan")
        return made

    there, names = observed(games, principals, _FILLED)
    empty, _ = observed(games, principals, 0.0)
    gives = [AccessIntent(name, key, read=True, reason="bench") for name in names for key in there.tables]
    takes = [AccessIntent(name, key, read=False, reason="bench") for name in names for key in there.tables]
    timed("matrix, first look at a snapshot", lambda: matrix(Resolver(there)))
    timed(f"plan, {len(gives):,} cells, a fifth is there", lambda: planned(there, gives, NOTHING))
    given = timed(f"plan, {len(gives):,} cells, nothing is there", lambda: planned(empty, gives, NOTHING))
    full, kept = simulate(empty, given.changes), given.after
    again = timed("plan again, all is there", lambda: planned(full, gives, kept))
    if not again.is_empty:
        raise AssertionError("applied and planned again a plan is not empty")
    timed(f"plan, {len(takes):,} cells are taken", lambda: planned(full, takes, kept))
    timed("plan of one cell beside all of them", lambda: planned(full, takes[:1], kept))
    timed("undo of all of them", lambda: undo(given.change_set, full, kept, 0.0))
    timed("drift over all of them", lambda: drift(full, kept, 0.0, {}))
    return found


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.access")
    parser.add_argument("--games", type=int, default=500)
    parser.add_argument("--principals", type=int, default=60)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = measure(options.games, options.principals, options.runs)
    print(milliseconds("what", found))
    result = {"machine": machine.describe(), "load": machine.load_average(), "runs": options.runs, "seconds": found}
    keep(result, options.out)


if __name__ == "__main__":
    main()
