"""Silver and gold tables that follow the grants of their games: whom turnout granted the game reads them, too.

Pure. Such a table holds no row that its game's table does not, so it needs no entitlement of its own. It is not granted
where the catalog hides rows or columns of the game's table: nothing would hide them in the other one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from grants.model import SELECT, GameTable, Observed, folded
from grants.observing.blindness import require_shown
from grants.observing.resolver import Resolver
from grants.planning.change_set import Draft, Spellings
from grants.planning.entitlements import AccessIntent, Cell, Entitlement, ManagedAccess, ManagedGrant
from pipeline.base.names import parted_table_key

ByCell: TypeAlias = Mapping[Cell, Sequence[Entitlement]]


_WHY: Final = "as the grants of its game"


class Following:
    """Which tables follow which grants of games, in one snapshot."""

    def __init__(self, before: Resolver, now: float) -> None:
        """Take entitlements for over by this time (Unix seconds)."""
        self._before, self._now = before, now
        self._of_games: Final[dict[str, list[str]]] = defaultdict(list)
        for key, table in before.observed.tables.items():
            if table.follows:
                self._of_games[table.game].append(key)

    def tables(self, game: str) -> list[GameTable]:
        """Return the tables that follow the grants of a game."""
        return [self._before.observed.tables[key] for key in self._of_games.get(game, ())]

    def keeps(self, entitlements: ByCell, cell: Cell) -> bool:
        """Return whether a grant on a table stays for one of its game. What is not known takes nothing."""
        return bool(self._of_game(entitlements, cell))

    def gains(self, entitlements: ByCell, cell: Cell) -> bool:
        """Return whether a grant on a table is due by one of its game: for the very table and person of that grant."""
        who, key = cell
        tables = self._before.observed.tables
        held = self._of_game(entitlements, cell)
        if not held or tables[key].securable not in self._before.observed.direct:
            return False
        game = tables.get(tables[key].game)
        if game is None or game.other is not None or tables[key].other is not None:
            return False
        if self._before.standing(who) != "active" or self._before.is_ambiguous(who):
            return False
        identity = self._before.identity(who)
        return any(
            each.table_id == game.table_id and (not each.principal_id or identity in {"", each.principal_id})
            for each in held
        )

    def due_of(self, intents: Iterable[AccessIntent], managed: ManagedAccess) -> list[AccessIntent]:
        """Return intents without those to read what no grant of a game makes due any more."""
        held = by_cell(managed.entitlements)
        return [each for each in intents if not (each.follow and each.read) or self.gains(held, each.cell)]

    def draft(
        self,
        draft: Draft,
        spelled: Spellings,
        entitlements: ByCell,
        managed: ManagedAccess,
        intents: Iterable[AccessIntent],
    ) -> set[ManagedGrant]:
        """Let grants follow where intents are about a table, or about its game; return those that have vanished.

        Raises:
            Refused: the snapshot does not show whether one is still there.
        """
        vanished = set[ManagedGrant]()
        for intent in intents:
            for key in [intent.key] if intent.follow else self._of_games.get(intent.key, ()):
                if intent.read:
                    self._add(draft, entitlements, intent.principal, key)
                elif self._take(draft, spelled, entitlements, managed, intent.principal, key):
                    vanished.add(self._given(intent.principal, key))
        return vanished

    def _add(self, draft: Draft, entitlements: ByCell, principal: str, key: str) -> None:
        cell = folded(principal), key
        if key not in self._before.selected_by_itself(cell[0]) and self.gains(entitlements, cell):
            draft.add(self._before.observed.table(key), principal, SELECT)

    def _take(
        self,
        draft: Draft,
        spelled: Spellings,
        entitlements: ByCell,
        managed: ManagedAccess,
        principal: str,
        key: str,
    ) -> bool:
        """Take a grant that is for nothing any more; return whether it has vanished."""
        given, cell = self._given(principal, key), (folded(principal), key)
        if given not in managed.given or cell in entitlements or self.keeps(entitlements, cell):
            return False
        spellings = spelled.given(given.securable, {principal}, SELECT)
        for each in spellings:
            draft.remove(given.securable, each, SELECT)
        if not spellings:
            require_shown(self._before, *given)
        return not spellings

    def _given(self, principal: str, key: str) -> ManagedGrant:
        return ManagedGrant(self._before.observed.table(key), folded(principal), SELECT)

    def _of_game(self, entitlements: ByCell, cell: Cell) -> list[Entitlement]:
        who, key = cell
        table = self._before.observed.tables.get(key)
        if table is None or not table.follows:
            return []
        game = self._before.observed.tables.get(table.game)
        if game is not None and game.hides:
            return []
        return [each for each in entitlements.get((who, table.game), ()) if not each.is_over(self._now)]


def due(observed: Observed, managed: ManagedAccess, in_force: Collection[str], now: float) -> list[AccessIntent]:
    """Return the intents by which each grant on a silver or gold table is for something that is in force.

    Tables that were made since their game was granted are granted, which a person's loss of such a grant in the catalog
    is not: that is drift. A table that left force is nobody's.

    Args:
        observed: with the assignments of all tables.
        managed: as it was read after that.
        in_force: keys of silver and gold tables; one need not be in the catalog yet.
        now: Unix seconds.
    """
    before = Resolver(observed)
    following, entitlements = Following(before, now), by_cell(managed.entitlements)
    found: dict[Cell, AccessIntent] = {}
    for (who, game), some in entitlements.items():
        tables = following.tables(game)
        selected = before.selected_by_itself(who) if tables else frozenset()
        for table in tables:
            is_there = table.key in selected or ManagedGrant(table.securable, who, SELECT) in managed.given
            if not is_there and following.gains(entitlements, (who, table.key)):
                found[who, table.key] = AccessIntent(some[0].principal, table.key, read=True, reason=_WHY, follow=True)
    over = {cell for cell, some in entitlements.items() if any(each.is_over(now) for each in some)}
    for each in managed.given:
        cell = each.principal, each.securable.path[-1]
        if each.privilege != SELECT or parted_table_key(cell[1]) is None or cell in entitlements:
            continue
        of = observed.tables.get(cell[1])
        expires = of is not None and (each.principal, of.game) in over  # its expiry takes this along
        if not expires and not following.keeps(entitlements, cell):
            found[cell] = AccessIntent(before.name(each.principal), cell[1], read=False, reason=_WHY, follow=True)
    for cell, some in entitlements.items():
        if parted_table_key(cell[1]) is not None and cell[1] not in in_force:
            found[cell] = AccessIntent(some[0].principal, cell[1], read=False, reason="its stream is not in force")
    return [found[cell] for cell in sorted(found)]


def by_cell(entitlements: Iterable[Entitlement]) -> ByCell:
    """Return entitlements by principal and game."""
    found: dict[Cell, list[Entitlement]] = defaultdict(list)
    for each in entitlements:
        found[folded(each.principal), each.key].append(each)
    return dict(found)
