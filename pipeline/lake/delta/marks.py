"""The mark of our commits, which sets them apart from those of others. It can be imitated, so it proves nothing."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deltalake import CommitProperties, Transaction

ENGINE: Final = "turnout"
"""The engine that our own commits name, and the key of our mark in those that delta-rs writes for us."""

ACCEPTED: Final = "foreign commits accepted"
"""The mark of a commit by which a person's decision gets into the log: the foreign ones below it stay."""

_APPS: Final = "turnout/"  # how the names of our Delta transactions begin
_CURSOR: Final = re.compile(r"turnout/[^/]+/[^/]+/[0-9]+")  # see `names.stream_app_id`
_GAP: Final = "/gap/"  # see `names.gap_app_id`


def marked(note: str, transactions: Mapping[str, int] | None = None, **more: Any) -> CommitProperties:
    """Return the properties of a commit that delta-rs writes for us; `note` says what it does.

    `more` are further properties of delta-rs, with `custom_metadata` beside the mark.
    """
    metadata = {ENGINE: note, **more.pop("custom_metadata", {})}
    apps = [Transaction(app, version) for app, version in (transactions or {}).items()]
    return CommitProperties(custom_metadata=metadata, app_transactions=apps or None, **more)


def info_of(actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what a commit says of itself; nothing where it does not."""
    info: Any = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
    return info if isinstance(info, dict) else {}


def is_ours(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether turnout made a commit, by any of its writers."""
    info = info_of(actions)
    if info.get("engineInfo") == ENGINE or ENGINE in info or str(info.get("userMetadata", "")).startswith(ENGINE):
        return True
    return info.get("operation") == "WRITE" and any(each.startswith(_APPS) for each in _apps(actions))


def has_judged(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a commit of ours says that the foreign ones below it were judged.

    A driver's commit does, by a stream's cursor, as does a rebuild, which takes all rows from bronze again; an
    acceptance does. A replay and an accepted gap do not: a repair judges nothing. The cut log of `repair table` does.
    """
    if not is_ours(actions):
        return False
    if info_of(actions).get(ENGINE) == ACCEPTED:
        return True
    apps = _apps(actions)
    is_repair = any(_GAP in each for each in apps) and not any("protocol" in each for each in actions)
    return not is_repair and any(_CURSOR.fullmatch(each) for each in apps)


def _apps(actions: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(each["txn"].get("appId", "")) for each in actions if "txn" in each]
