"""Says which commits a landing table's log has, by their content: an older copy that has grown again has others."""

from collections.abc import Collection, Mapping

from pipeline.data.ingest.evidence.marks import LastRecord, Mark, digest
from pipeline.lake.delta.log import commit_file
from pipeline.lake.storage.location import Location


class LandingWitness:
    """Looks into the log of a landing table."""

    def __init__(self, landing: Location) -> None:
        """Keep the folder; reads nothing yet."""
        self._landing = landing

    def look(self, described: Collection[str]) -> Mapping[str, Mark]:
        """Return nothing about the table: its reader compares the id."""
        return {each: Mark() for each in described}

    def records(self, described: str, offsets: Mapping[int, int]) -> Mapping[int, LastRecord]:  # noqa: ARG002 - the kinds' signature
        """Return the commits of these versions; absent where log cleanup has removed one."""
        found = {}
        for number, version in offsets.items():
            try:
                content = commit_file(self._landing, version).read()
            except FileNotFoundError:
                continue
            found[number] = LastRecord(version, None, None, digest(content))
        return found

    def onward(self, described: str, offsets: Mapping[int, int]) -> Mapping[int, LastRecord]:
        """Return the commits of these versions: a log has no holes."""
        return self.records(described, offsets)

    def close(self) -> None:
        """Do nothing: it keeps no connection."""
