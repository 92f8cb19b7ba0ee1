"""Results that many viewers see alike are made once, and kept for a while beside the object they are made from."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

_MOST_OWNERS: Final = 16  # the last ones that were looked at: readings of the last seconds
_MOST_RESULTS: Final = 32  # of one owner, the newest
_BY_VALUE: Final = (str, int, float, bool, type(None))

_lock = threading.Lock()
_kept: OrderedDict[int, tuple[object, dict[tuple[object, ...], tuple[tuple[object, ...], Any]]]] = OrderedDict()
"""Cached values by the owner's id; owner and arguments are held, so that no other object gets their ids meanwhile."""


def once(make: Callable[..., _T], owner: object, *others: object) -> _T:
    """Return `make(owner, *others)`, made once for these very objects; texts and numbers count by their value.

    `make` must be pure, and nobody may change its result.
    """
    key = (make, *(each if isinstance(each, _BY_VALUE) else id(each) for each in others))
    with _lock:
        _, results = _kept.setdefault(id(owner), (owner, {}))
        _kept.move_to_end(id(owner))
        if len(_kept) > _MOST_OWNERS:
            _kept.popitem(last=False)
        found = results.get(key)
    if found is None:
        found = others, make(owner, *others)  # two viewers may make it at the same moment
        with _lock:
            if len(results) >= _MOST_RESULTS:
                results.pop(next(iter(results)))
            results[key] = found
    result: _T = found[1]
    return result
