"""Arms fail-points and tells how often each was hit and went off."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pipeline.base.failpoints import POINTS


class Faults:
    """The fail-points of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def arm(self, point: str, action: str, after: int = 1) -> None:
        """Let the point fail at its `after`-th hit from now."""
        line = f"{point} {action} {self.hits()[point] + after}"
        with (self.folder / "armed").open("a", encoding="utf-8") as handle:
            handle.write(line + "\n")

    def disarm(self) -> None:
        (self.folder / "armed").write_text("", "utf-8")

    def forget(self) -> None:
        """Disarm, and count from zero again."""
        for file in self.folder.iterdir():
            file.unlink()

    def hits(self) -> Mapping[str, int]:
        """How often each point was reached."""
        return {point: _lines(self.folder / f"{point}.hits") for point in POINTS}

    def fired(self) -> Counter[str]:
        """How often each point's fault went off."""
        try:
            lines = (self.folder / "fired").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return Counter()
        return Counter(line.split()[0] for line in lines)


def _lines(file: Path) -> int:
    try:
        return len(file.read_text("utf-8").splitlines())
    except FileNotFoundError:
        return 0
