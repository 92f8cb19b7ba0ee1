"""The file that says who is in which group, for a catalog that knows no groups."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from grants.model import folded
from pipeline.base.errors import Refused


class Members:
    """A YAML file `groups: {GROUP: [MEMBER, …]}`, read again each time; None, or no file, is no groups."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def groups(self) -> Mapping[str, frozenset[str]]:
        """Return each group's direct members, folded names all.

        Raises:
            Refused: the file has another form; all that is wrong is named.
        """
        if self._file is None or not self._file.exists():
            return {}
        try:
            tree = yaml.safe_load(self._file.read_text("utf-8")) or {}
        except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
            raise Refused(f"{self._file} cannot be read as YAML: {error}") from error
        groups = tree.get("groups") if isinstance(tree, dict) else None
        if not isinstance(groups, dict):
            raise Refused(f"{self._file} must have `groups:` with a list of members for each group.")
        problems = [f"{name!r}: {members!r}" for name, members in groups.items() if not _is_group(name, members)]
        if problems:
            raise Refused(
                f"{self._file}: each group must be a name with a list of names. Correct {'; '.join(problems)}."
            )
        return {folded(name): frozenset(map(folded, members or ())) for name, members in groups.items()}

    def groups_of(self) -> Mapping[str, frozenset[str]]:
        """Return the groups that everybody is directly in, folded names all."""
        groups_by_member: dict[str, set[str]] = {}
        for group, members in self.groups().items():
            for member in members:
                groups_by_member.setdefault(member, set()).add(group)
        return {member: frozenset(groups) for member, groups in groups_by_member.items()}

    def all_groups_of(self, name: str) -> list[str]:
        """Return the groups a principal is in, also through groups, the nearest first."""
        groups_of, reached, left = self.groups_of(), dict.fromkeys([folded(name)]), [folded(name)]
        while left:
            for group in sorted(groups_of.get(left.pop(0), ())):
                if group not in reached:
                    reached[group] = None
                    left.append(group)
        return list(reached)[1:]


def _is_group(name: Any, members: Any) -> bool:
    return isinstance(name, str) and (
        members is None or (isinstance(members, list) and all(isinstance(member, str) for member in members))
    )
