"""A superset as the text that a registration keeps, one for equal supersets. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.data.contracts.formats.json.caps import Caps
from pipeline.data.contracts.formats.json.shapes import ALGORITHM
from pipeline.data.contracts.formats.json.superset import Level, Slot, Superset

_BEGIN: Final = re.compile(rb'\{"algorithm":\d+,"version":(\d+),')
_OWN: Final = ("version", "other", "closed", "variations", "pinned")


def dumps(superset: Superset) -> bytes:
    """Return the text of a superset."""
    own = {name: getattr(superset, name) for name in _OWN}
    made = {
        "algorithm": ALGORITHM,
        **own,
        "caps": asdict(superset.caps),
        "refused": superset.refused,
        "keys": _written(superset.root),
    }
    return json.dumps(made, separators=(",", ":")).encode()


def loads(text: bytes) -> Superset:
    """Return the superset of a text.

    Raises:
        Refused: this version of turnout did not write it.
    """
    try:
        given = json.loads(text)
        if given["algorithm"] != ALGORITHM:
            raise ValueError("of another algorithm")
        caps = Caps(**{name: int(most) for name, most in given["caps"].items()})
        refused = tuple((str(name), tuple(map(str, unwanted))) for name, unwanted in given["refused"])
        return Superset(
            root=_read(given["keys"]), caps=caps, refused=refused, **{name: int(given[name]) for name in _OWN}
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(
            "A superset of JSON documents cannot be read: another version of turnout wrote it, or it is damaged. Start "
            "the newest version."
        ) from error


def version_of(text: bytes) -> int:
    """Return the version of a superset's text, without reading the rest.

    Raises:
        Refused: this version of turnout did not write it.
    """
    found = _BEGIN.match(text)
    return loads(text).version if found is None else int(found[1])


def _written(level: Level) -> dict[str, list[dict[str, Any]]]:
    return {key: [_slot(each) for each in slots] for key, slots in sorted(level.slots.items())}


def _slot(one: Slot) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": one.kind, "name": one.name, "since": one.since}
    if one.joined:
        made["joined"] = [_slot(each) for each in one.joined]
    return made if one.members is None else made | {"full": one.full, "keys": _written(one.members)}


def _read(given: Mapping[str, Any]) -> Level:
    return Level({key: tuple(map(_read_slot, slots)) for key, slots in given.items()})


def _read_slot(given: Mapping[str, Any]) -> Slot:
    members = _read(given["keys"]) if "keys" in given else None
    joined = tuple(map(_read_slot, given.get("joined", ())))
    return Slot(str(given["kind"]), str(given["name"]), int(given["since"]), members, int(given.get("full", 0)), joined)
