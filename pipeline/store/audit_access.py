"""What the audit log keeps of a change of access: whose reading of which game's table was granted or revoked. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

Verb = Literal["grant", "revoke", "adopt"]
_WHOSE: Final[Mapping[Verb, str]] = {"grant": "to", "revoke": "from", "adopt": "of"}
_KEPT_AS: Final = "changes"


@dataclass(frozen=True, slots=True)
class AccessChange:
    """One change for one principal; the game is empty where it is about privileges that no game needs."""

    verb: Verb
    principal: str
    game_key: str
    table: str = ""  # its full name; empty where nothing was read of the catalog yet

    def sentence(self, names: Mapping[str, str]) -> str:
        """Return the change for people; `names` are the games' by their keys."""
        key = self.game_key
        what = f"{names.get(key, key)} ({self.table or key})" if key else "privileges that no game needs"
        return f"{self.verb} {what} {_WHOSE[self.verb]} {self.principal}"


def requested(
    intents: Iterable[Mapping[str, Any]], table_of: Callable[[str], str] = lambda _: ""
) -> list[AccessChange]:
    """Return what intents request; each names a principal, a game's key, and whether to read it or to adopt that."""
    return [
        AccessChange(
            "adopt" if each.get("adopt") else "grant" if each["read"] else "revoke",
            each["principal"],
            each["key"],
            table_of(each["key"]),
        )
        for each in intents
    ]


def kept(changes: Iterable[AccessChange]) -> dict[str, Any]:
    """Return changes as the detail of an act, or the parameters of an operation, keeps them."""
    return {_KEPT_AS: [asdict(each) for each in changes]}


def changes_of(detail: Mapping[str, Any]) -> Sequence[AccessChange]:
    """Return what an entry's detail says of access; nothing where it is about something else, or was spoilt by hand."""
    parameters = detail.get("parameters")
    rows = (parameters if isinstance(parameters, Mapping) else detail).get(_KEPT_AS)
    return [change for row in (rows if isinstance(rows, list) else []) if (change := _read(row)) is not None]


def _read(row: Any) -> AccessChange | None:
    if not isinstance(row, Mapping):
        return None
    words = {name: row.get(name) for name in ("principal", "game_key", "table")}
    texts = {name: word for name, word in words.items() if isinstance(word, str)}
    verb = next((each for each in _WHOSE if each == row.get("verb")), None)
    return None if verb is None or texts.keys() != words.keys() else AccessChange(verb, **texts)
