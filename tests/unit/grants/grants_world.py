"""Random catalogs for the tests of grants, and a slow model of reading that shares no code with the resolver."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from grants.model import Directory, GameTable, Observed, Principal, Securable

CATALOG = Securable(("main",))
SCHEMA = Securable(("main", "games"))
PRIVILEGES = ("SELECT", "USE_SCHEMA", "USE_CATALOG", "ALL_PRIVILEGES", "MANAGE", "MODIFY", "BROWSE", "READ_DREAMS")


def table_of(key: str) -> Securable:
    return Securable((*SCHEMA.path, key))


def catalog_snapshot(
    direct: dict[Securable, dict[str, set[str]]] | None = None,
    *,
    groups: dict[str, set[str]] | None = None,
    keys: tuple[str, ...] = ("chess", "go"),
    people: tuple[str, ...] = ("ann@x", "bob@x"),
    owner: str = "pipeline",
) -> Observed:
    """Return a catalog in which everything was read; `groups` are members → groups."""
    groups = groups or {}
    names = {group for found in groups.values() for group in found} | {"readers"}
    principals = {name: Principal(name, "group" if name in names else "user") for name in (*people, *names)}
    principals[owner] = Principal(owner, "service_principal")
    tables = {key: GameTable(key, table_of(key), f"id-{key}", owner) for key in keys}
    where = (CATALOG, SCHEMA, *(each.securable for each in tables.values()))
    given = direct or {}
    return Observed(
        schema=SCHEMA, tables=tables, owners=dict.fromkeys(where, owner),
        direct={each: {who: frozenset(held) for who, held in given.get(each, {}).items()} for each in where},
        directory=Directory(principals, {name: frozenset(found) for name, found in groups.items()}), read_at=0.0,
    )  # fmt: skip


def with_tables(observed: Observed, tables: dict[str, str], *, follow: bool = True) -> Observed:
    """Return a catalog that has these silver and gold tables, too: key → the game's."""
    own = {
        key: GameTable(key, table_of(key), f"id-{key}", "pipeline", game=game, follows=follow)
        for key, game in tables.items()
    }
    return replace(
        observed,
        tables={**observed.tables, **own},
        owners={**observed.owners, **{each.securable: "pipeline" for each in own.values()}},
        direct={**{each.securable: {} for each in own.values()}, **observed.direct},
    )


def random_catalog(rng: Random, *, unread: bool = True, emulated: bool = False) -> Observed:
    """Return a catalog with nested groups, circles among them, odd spelling, strangers, and what was not read."""
    users = [f"u{number}" for number in range(rng.randint(1, 4))]
    groups = [f"g{number}" for number in range(rng.randint(1, 4))]
    principals = {
        name: Principal(name.upper(), "user" if name in users else "group", active=rng.random() < 0.9)
        for name in (*users, *groups)
        if rng.random() < 0.95
    }
    groups_of = {
        name: frozenset(group for group in groups if rng.random() < 0.3)
        for name in (*users, *groups)
        if rng.random() < 0.9
    }
    keys = [f"k{number}" for number in range(rng.randint(1, 2))]
    where = (CATALOG, SCHEMA, *(table_of(key) for key in keys))
    everybody = [*users, *groups, "account users", "stranger"]
    owners: dict[Securable, str | None] = {
        each: None if unread and rng.random() < 0.1 else rng.choice((*everybody, *["robot"] * 9)) for each in where
    }
    direct = {
        each: {
            name if rng.random() < 0.7 else name.title(): frozenset(rng.choices(PRIVILEGES, k=rng.randint(1, 3)))
            for name in everybody
            if rng.random() < 0.3
        }
        for each in where
        if not unread or rng.random() < 0.95
    }
    tables = {
        key: GameTable(key, table_of(key), f"id-{key}", owners[table_of(key)], rng.random() < 0.1) for key in keys
    }
    return Observed(SCHEMA, tables, owners, direct, Directory(principals, groups_of, emulated), 0.0)


@dataclass(frozen=True)
class Truth:
    """Whether somebody reads, and could grant it to themselves."""

    reads: bool | None
    could: bool | None


def truth(observed: Observed, who: str, selves: set[str], key: str) -> Truth:
    """Try the world in which everything that was not read forbids, and the one in which it all allows.

    Where groups are emulated, who reads does so as themselves or as one of their groups that is there and active.
    """
    worst, best = (_in_worlds(observed, who, selves, key, unread=unread) for unread in (False, True))
    return Truth(
        worst[0] if worst[0] == best[0] else None,
        worst[1] if worst[1] == best[1] else None,
    )


def _in_worlds(observed: Observed, who: str, selves: set[str], key: str, *, unread: bool) -> tuple[bool, bool]:
    if not observed.directory.emulated_groups:
        return _in_a_world(observed, who, selves, key, unread=unread)
    known = observed.directory.principals
    groups = [each for each in selves - {who} if each == "account users" or (each in known and known[each].active)]
    each = [_in_a_world(observed, who, {one}, key, unread=unread) for one in (who, *groups)]
    return any(reads for reads, _ in each), any(could for _, could in each)


def _in_a_world(observed: Observed, who: str, selves: set[str], key: str, *, unread: bool) -> tuple[bool, bool]:
    known = observed.directory.principals.get(who)
    if (known is None and who != "account users") or (known is not None and not known.active):
        return False, False

    def granted(privilege: str, *names: str) -> bool:
        return any(_granted(observed, selves, privilege, name, unread=unread) for name in names)

    def owns(name: str) -> bool:
        securable = Securable(tuple(name.split(".")))
        owner = observed.owners[securable]
        return unread if owner is None else owner.lower() in selves

    catalog, schema, table = "main", "main.games", f"main.games.{key}"
    select = granted("SELECT", catalog, schema, table) or granted("ALL_PRIVILEGES", catalog, schema, table)
    use_schema = granted("USE_SCHEMA", catalog, schema) or granted("ALL_PRIVILEGES", catalog, schema) or owns(schema)
    use_catalog = granted("USE_CATALOG", catalog) or granted("ALL_PRIVILEGES", catalog) or owns(catalog)
    uses = use_schema and use_catalog
    could = owns(schema) or owns(catalog) or (uses and granted("MANAGE", catalog, schema, table))
    return (select or owns(table)) and uses, could


def _granted(observed: Observed, selves: set[str], privilege: str, name: str, *, unread: bool) -> bool:
    securable = Securable(tuple(name.split(".")))
    if securable not in observed.direct:
        return unread
    return any(holder.lower() in selves and privilege in held for holder, held in observed.direct[securable].items())


def members_closure(observed: Observed, who: str) -> set[str]:
    """Return somebody's name and those of their groups: pairs are joined until no new pair comes of it."""
    pairs = {(member, group) for member, groups in observed.directory.groups_of.items() for group in groups}
    while joined := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= joined
    first = {who, "account users"}
    return first | {group for member, group in pairs if member in first}


def assignments(observed: Observed) -> set[tuple[str, str, str]]:
    """Return all direct assignments, one by one."""
    return {
        (where.full_name, who, privilege)
        for where, direct in observed.direct.items()
        for who, held in direct.items()
        for privilege in held
    }


def everybody(observed: Observed) -> Iterator[str]:
    """Yield everybody in the directory, everyone, and somebody who is nowhere."""
    yield from (*observed.directory.principals, "account users", "stranger")


def recreated(observed: Observed, key: str) -> Observed:
    """Return it after a table was dropped and made anew, by which its grants are lost."""
    table = replace(observed.tables[key], table_id=f"new-{key}")
    direct = {**observed.direct, table.securable: {}}
    return replace(observed, tables={**observed.tables, key: table}, direct=direct)
