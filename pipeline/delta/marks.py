"""The mark of our commits, which sets them apart from those of others. It can be imitated, so it proves nothing."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from deltalake import CommitProperties, Transaction

ENGINE: Final = "turnout"
"""The engine that our own commits name, and the key of our mark in those that delta-rs writes for us."""

_APPS: Final = "turnout/"  # how the names of our Delta transactions begin


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
    return info.get("operation") == "WRITE" and moves_cursor(actions)


def moves_cursor(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a commit has a transaction of a turnout's, as a driver's commits have."""
    return any(str(each["txn"].get("appId", "")).startswith(_APPS) for each in actions if "txn" in each)
