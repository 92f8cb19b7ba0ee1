"""Results that viewers share are made once for the same objects, and old ones are let go of."""

import gc
import weakref
from dataclasses import dataclass

from app.state import shared
from app.state.shared import once


@dataclass(slots=True, weakref_slot=True)
class Owner:
    """An object that equals others and is none of them."""

    number: int = 0


def test_a_result_is_made_once_for_the_same_objects_and_values() -> None:
    """Equal texts and numbers are the same; equal objects are not, and neither are results of another function."""
    made: list[tuple[object, ...]] = []

    def make(*arguments: object) -> int:
        made.append(arguments)
        return len(made)

    owner, other, beside = Owner(), Owner(), Owner()
    assert [once(make, owner, beside, "a", 1.5, None) for _ in range(3)] == [1, 1, 1]
    assert once(make, owner, Owner(), "a", 1.5, None) == 2
    assert once(make, other, beside, "a", 1.5, None) == 3
    assert once(make, owner, beside, "b", 1.5, None) == 4
    assert once(lambda *_: 9, owner, beside, "a", 1.5, None) == 9


def test_a_day_of_readings_keeps_only_the_newest() -> None:
    """Memory is flat though each result holds its owner, and each owner has results by the moment."""
    old = Owner(0)
    gone = weakref.ref(old)
    assert once(lambda owner: (owner, "made"), old)[1] == "made"
    for number in range(1, 2 * shared._MOST_OWNERS):
        owner = Owner(number)
        for moment in range(2 * shared._MOST_RESULTS):
            once(lambda it, at: (it, at), owner, moment)
    del old
    gc.collect()
    assert gone() is None
    assert len(shared._kept) == shared._MOST_OWNERS
    assert all(len(results) <= shared._MOST_RESULTS for _, results in shared._kept.values())
