"""The sample definitions in Avro: a first version per family, and what each later version changes.

Other than those in protobuf they also remove, rename and widen fields. A reader with a newer version can read rows of
the one before (the compatibility BACKWARD of Confluent's registry), so that every registry accepts them.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pipeline.demo.samples.sample import check_version

Field: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[list[Field]], None]

_NAMES: Final = {"puzzle": "LevelPlayed", "shooter": "MatchPlayed", "racing": "LapDriven"}
_TIME: Final = {"type": "long", "logicalType": "timestamp-micros"}


def avro_schema(family: str, version: int) -> dict[str, Any]:
    """Return a definition as JSON would have it.

    Raises:
        Refused: there is no such family or version.
    """
    check_version(family, version)
    fields = copy.deepcopy(_FIRST[family])
    for changes in _CHANGES[family][: version - 1]:
        for change in changes:
            change(fields)
    return {"type": "record", "name": _NAMES[family], "namespace": f"samples.{family}", "fields": fields}


def _add(name: str, kind: Any, default: Any, path: str = "") -> Change:
    def change(fields: list[Field]) -> None:
        _inside(fields, path).append({"name": name, "type": copy.deepcopy(kind), "default": copy.deepcopy(default)})

    return change


def _remove(name: str) -> Change:
    def change(fields: list[Field]) -> None:
        fields.remove(_field(fields, name))

    return change


def _rename(old: str, new: str) -> Change:
    def change(fields: list[Field]) -> None:
        field = _field(fields, old)
        field["aliases"] = [*field.get("aliases", []), old]
        field["name"] = new

    return change


def _widen(name: str, kind: str, path: str = "") -> Change:
    def change(fields: list[Field]) -> None:
        _field(_inside(fields, path), name)["type"] = kind

    return change


def _symbol(name: str, symbol: str) -> Change:
    def change(fields: list[Field]) -> None:
        _field(fields, name)["type"]["symbols"].append(symbol)

    return change


def _field(fields: Sequence[Field], name: str) -> Field:
    return next(field for field in fields if field["name"] == name)


def _inside(fields: list[Field], path: str) -> list[Field]:
    """Return the fields of the record that the field `path` has; all fields without a path."""
    if not path:
        return fields
    inside: list[Field] = _field(fields, path)["type"]["fields"]
    return inside


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def _enum(name: str, *symbols: str) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols)}


def _plain(**fields: Any) -> list[Field]:
    return [{"name": name, "type": kind} for name, kind in fields.items()]


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
_UUID: Final = {"type": "string", "logicalType": "uuid"}
_DATE: Final = {"type": "int", "logicalType": "date"}

_FIRST: Final[Mapping[str, list[Field]]] = {  # the first field is a string: see `AvroSample.broken`
    "puzzle": _plain(
        player_id="string",
        round="long",
        level="int",
        outcome=_enum("Outcome", "WON", "LOST"),
        score="int",
        ended_at=_TIME,
        board=_record("Board", width="int", height="int"),
    ),
    "shooter": _plain(
        player_id="string",
        round="long",
        arena="string",
        kills="int",
        deaths="int",
        weapon=_enum("Weapon", "RIFLE", "BOW"),
        last_position=_record("Position", x="float", y="float"),
        ended_at=_TIME,
    ),
    "racing": _plain(
        player_id="string",
        round="long",
        track="string",
        lap="int",
        lap_time_ms="int",
        sector_seconds=_array("float"),
        tyre=_enum("Tyre", "SOFT", "HARD"),
        car=_record("Car", model="string", number="int"),
        ended_at=_TIME,
    ),
}

_CHANGES: Final[Mapping[str, tuple[tuple[Change, ...], ...]]] = {  # those of versions 2, 3, …
    "puzzle": (
        (_add("moves", _array("int"), []), _add("duration_seconds", "double", 0.0)),
        (
            _widen("score", "long"),
            _add("boosters", _map("int"), {}),
            _add("country", ["null", "string"], None),
            _add("seed", "long", 0, "board"),
        ),
        (
            _symbol("outcome", "QUIT"),
            _add("hints", _array(_record("Hint", at_move="int", kind="string")), []),
            _add("reward", ["null", "long", "string"], None),
        ),
        (_rename("duration_seconds", "seconds_played"), _add("spent", _DECIMAL, "\u0000"), _add("stars", "int", 0)),
        (
            _remove("country"),
            _add("client_version", "string", ""),
            _add("replay_digest", ["null", {"type": "fixed", "name": "Digest", "size": 16}], None),
        ),
    ),
    "shooter": (
        (_add("assists", "int", 0), _add("badges", _array("string"), [])),
        (
            _widen("kills", "long"),
            _symbol("weapon", "HAMMER"),
            _add("hits", _array(_record("Hit", target_id="string", damage="int", at="Position")), []),
        ),
        (_add("z", "float", 0.0, "last_position"), _add("accuracy", _map("double"), {})),
        (_rename("arena", "map_name"), _add("ending", ["null", "boolean", "string"], None)),
        (_remove("deaths"), _add("session", ["null", _UUID], None), _add("replay", "bytes", "")),
    ),
    "racing": (
        (_add("personal_best", "boolean", default=False), _add("setup", _map("string"), {})),
        (
            _widen("lap_time_ms", "long"),
            _symbol("tyre", "WET"),
            _add("upgrades", _array("string"), [], "car"),
            _add("top_speed", "float", 0.0),
        ),
        (_widen("top_speed", "double"), _add("season_day", ["null", _DATE], None)),
        (_rename("track", "circuit"), _add("pit_stop", ["null", _record("Stop", seconds="float", why="string")], None)),
        (_remove("sector_seconds"), _add("started_at", ["null", _TIME], None), _add("prize", _DECIMAL, "\u0000")),
    ),
}
