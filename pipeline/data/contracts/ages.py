"""The age of a game's schemas among each other, as far as it is known. Pure.

The order in which schemas are registered is not their age: the first row of an old version may come late, and a person
may let an old version in after newer ones.
"""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

Line: TypeAlias = Hashable
"""What counts versions by age, such as a subject of a registry; numbers of two lines cannot be compared."""

Age: TypeAlias = frozenset[tuple[Line, int]]
"""A schema's numbers in the lines that know it; empty: nobody knows its age."""

UNKNOWN: Final[Age] = frozenset()
_AFTER_ALL: Final = 2**62


@dataclass(frozen=True, slots=True)
class Ages:
    """The ages of the schemas that a game has, in the order of registration, and of a new one."""

    held: tuple[Age, ...]
    new: Age = UNKNOWN

    def joined(self, having: Collection[int], among: Iterable[int]) -> bool:
        """Return whether what some held schemas have reaches the new one: none between lacks it, for certain.

        Args:
            having: those that have it, by their place among the held ones.
            among: all that could have it.
        """
        lacking = [self.held[each] for each in among if each not in having]
        if not lacking:
            return bool(having)
        return any(
            _outside(lacking, line, {number, own})
            for turn in having
            for line, number in self.held[turn]
            for own in _numbers(self.new, line)
        )


def in_order(count: int) -> Ages:
    """Return the ages of schemas whose order is the one in which they are given, the new one last."""
    return Ages(tuple(frozenset({("", turn)}) for turn in range(count)), frozenset({("", count)}))


def after(held: Iterable[Age], known: Age = UNKNOWN) -> Age:
    """Return the age of a schema that is newer than all of these, in the lines that do not know it."""
    lines = {line for line, _ in known}
    return frozenset((line, _AFTER_ALL) for age in held for line, _ in age if line not in lines)


def _numbers(age: Age, line: Line) -> list[int]:
    return [number for each, number in age if each == line]


def _outside(ages: Iterable[Age], line: Line, ends: Collection[int]) -> bool:
    """Return whether each of these is known to lie outside of two numbers of a line."""
    low, high = min(ends), max(ends)
    each = [_numbers(age, line) for age in ages]
    return all(numbers and not any(low <= number <= high for number in numbers) for numbers in each)
