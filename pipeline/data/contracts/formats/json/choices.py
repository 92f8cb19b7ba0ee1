"""What a person chose about the superset of an event type: to pin it, to refuse a variation, or to join columns. Pure.

Each choice is a superset of its own, with the columns of the one before but for those that are joined. So whether a row
lands depends on it and the schema set alone, and a choice holds for rows that have not landed yet.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pipeline.base.texts import join_limited
from pipeline.data.contracts.formats.json.merging import merged, parted
from pipeline.data.contracts.formats.json.shapes import ROOT, Shape, escaped, facts
from pipeline.data.contracts.formats.json.superset import WHOLE_DOCUMENT, Superset, shape_of

PINNED: Final = "pinned_type"
"""The reason of a document that has something new, while its type is pinned."""
REFUSED: Final = "refused_variation"
"""The reason of a document with a fact of a variation that is refused."""

_MOST_SHOWN: Final = 3
_PLAIN: Final = re.compile(r"[A-Za-z0-9_ -]+")
_FIRST: Final = re.compile(r"(?:\\.|[^\\.:\[\]{}*+])*")


class Unwanted(Exception):
    """A document that a person's choice refuses; `reason` is a reason code of quarantine."""

    def __init__(self, reason: str, detail: str) -> None:
        """Keep the reason and a line of explanation."""
        super().__init__(detail)
        self.reason = reason


def chosen(superset: Superset, choice: Sequence[str]) -> Superset:
    """Return the superset after a choice.

    Choices are `pin`, `unpin`, `refuse` with fingerprint and form, `allow` with fingerprint, `merge` with the path of a
    column and the kind of the wider one, `split` with the path and the superset that joined the columns.

    The superset itself where that is chosen already.

    Raises:
        ValueError: it is no choice.
    """
    match tuple(choice):
        case ("pin",):
            return superset if superset.pinned else pinned(superset)
        case ("unpin",):
            return unpinned(superset) if superset.pinned else superset
        case ("refuse", fingerprint, form):
            return superset if fingerprint in dict(superset.refused) else refusing(superset, fingerprint, form)
        case ("allow", fingerprint):
            return allowing(superset, fingerprint) if fingerprint in dict(superset.refused) else superset
        case ("merge", path, kind):
            return merged(superset, path, kind)
        case ("split", path, since):
            return parted(superset, path, int(since))
        case _:
            raise ValueError(f"no choice: {choice!r}")


def without_choices(superset: Superset) -> Superset:
    """Return a superset without the choices of people, as rows that landed before them need it."""
    return replace(superset, pinned=0, refused=())


def pinned(superset: Superset) -> Superset:
    """Return a superset that grows no more: what has something new is refused."""
    version = superset.version + 1
    return replace(superset, version=version, pinned=superset.pinned or version)


def unpinned(superset: Superset) -> Superset:
    """Return a superset that grows again."""
    return replace(superset, version=superset.version + 1, pinned=0)


def refusing(superset: Superset, fingerprint: str, form: str) -> Superset:
    """Return a superset that refuses documents with a fact of a variation; `form` has a line for each of its facts."""
    kept = {**dict(superset.refused), fingerprint: tuple(sorted(_facts_of(form)))}
    return replace(superset, version=superset.version + 1, refused=tuple(sorted(kept.items())))


def allowing(superset: Superset, fingerprint: str) -> Superset:
    """Return a superset that takes a refused variation again."""
    kept = tuple(each for each in superset.refused if each[0] != fingerprint)
    return replace(superset, version=superset.version + 1, refused=kept)


def require_wanted(superset: Superset, document: Mapping[str, Any]) -> None:
    """Refuse a parsed document with a fact of a refused variation.

    Raises:
        Unwanted: it has one.
        Misfit: it holds text without a form as UTF-8.
    """
    if not superset.refused:
        return
    first = first_keys(superset)
    found: set[str] = set()
    for key, value in document.items():
        if escaped(key) not in first:
            continue
        # Read alone, and as the superset reads it: an object may have become a map since the variation was seen.
        for slots in ((), superset.root.of(key)):
            found.update(facts(Shape(frozenset(), {ROOT: {key: shape_of(value, slots)}})))
    for fingerprint, unwanted in superset.refused:
        if (fact := next((each for each in unwanted if each in found), None)) is not None:
            raise Unwanted(REFUSED, f"has {fact} of the refused variation {fingerprint}")


def pinned_refusal(superset: Superset, document: Mapping[str, Any], size: int) -> Unwanted:
    """Return the refusal of a document that a pinned superset does not cover."""
    new = superset.beyond(document, size)
    what = "it would land whole as text" if new is WHOLE_DOCUMENT else join_limited(list(facts(new)), _MOST_SHOWN)
    return Unwanted(PINNED, f"its type is pinned, and it has something new: {what}")


def first_keys(superset: Superset) -> frozenset[str]:
    """Return the first key of each refused fact, as facts write it."""
    return frozenset(_FIRST.findall(fact)[0] for _, unwanted in superset.refused for fact in unwanted)


def may_be_unwanted(superset: Superset) -> str | None:
    """Return a regular expression that finds documents which may have a refused fact; None where none is refused."""
    if not superset.refused:
        return None
    keys = first_keys(superset)
    if not all(map(_PLAIN.fullmatch, keys)):  # such a key may be written in many ways
        return ""
    return "|".join([r"\\u", *(f'"{re.escape(key)}"' for key in sorted(keys))])


def _facts_of(form: str) -> Iterable[str]:
    """Return the facts of a form, without its first line, the version of the rules, and the remark of a cut one."""
    return (line for line in form.split("\n")[1:] if ":" in line)
