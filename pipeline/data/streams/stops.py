"""Where an output contract stops a stream: before the first seq with a row that breaks a rule with the action `stop`.

A task reports the first such row of each game. Nothing from its seq on lands or is refused; the rows before it do.
"""

from typing import NamedTuple

from pipeline.base.names import shown
from pipeline.data.streams.lanes import Failure


class Stop(NamedTuple):
    """The first row that breaks a rule which stops its stream. Stops sort by place, so that any cut finds the same."""

    seq: int
    pos: int
    rule: str  # with its contract's name
    column: str

    def sentence(self, game: str) -> str:
        """Return which row breaks which rule, without any of its values."""
        row = f"row {self.pos} of seq {self.seq} of {shown(game)}"
        return f"{row} breaks rule {self.rule} on column {shown(self.column)}"

    def failure(self, game: str, stopped_by: str) -> Failure:
        """Return the failure that parks the stream; `stopped_by` says which rules, see `StreamControl`.

        The rows before its seq have landed.
        """
        evidence = f"Output contract: {self.sentence(game)}; the stream stopped before it"
        return Failure("poison", evidence, parks=True, stopped_by=stopped_by)
