"""The state in the model of the protocol: tables, checkpoints, and what each process remembers. Values only."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

RETIRED: Final = -1
"""The cursor of a generation that a rebuild replaced."""

NEVER: Final = 9
"""A payload that no schema set decodes; 1 is decoded by every set, 2 by the second and later ones."""

FOREIGN: Final = 100
"""Payloads of the writers of a foreign registry are of the kinds above it: its first writer's of kind 101."""

TYPED: Final = 8
"""A payload of a further event type: the second schema set accepts it, the third withdraws it, and so on."""

Game: TypeAlias = int
Writer: TypeAlias = int  # of a foreign registry, from 1 on
Kinds: TypeAlias = tuple[int, ...]  # of one game's rows in one batch: the first schema set that decodes each, or TYPED
Batch: TypeAlias = dict[Game, Kinds]


class Row(NamedTuple):
    """One row by its place, and where in the source it came from."""

    seq: int
    pos: int
    batch: int


class Commit(NamedTuple):
    """One commit of bronze; its seq is its number in the log, from 1 on."""

    batch: int  # of the source, from 1 on
    links: tuple[tuple[Game, int], ...]  # game and its prev_seq, of each game that has rows in it


Bronze: TypeAlias = tuple[Commit, ...]


class Ingest(NamedTuple):
    """The ingest query: its checkpoint, and what its process remembers."""

    passed: int  # the last batch of the source that the checkpoint has as done
    last_seqs: tuple[int, ...] | None  # the last seq of each game, None while no process runs
    generation: int = 1
    landed: int = 0  # the last batch that this process put into bronze
    reported: int = 0  # the last seq that the control store has heard of


class Answer(NamedTuple):
    """A row of the control store: what a writer means from a schema set on."""

    number: int  # of the first schema set that has it
    writer: Writer
    schema: int  # 0: refused, as the registry has none


class Need(NamedTuple):
    """The writer whose meaning a game waits for."""

    seq: int  # of the game's first row that needs it
    writer: Writer
    after: int  # the game's seq before it: rows up to there do not wait


class Lookup(NamedTuple):
    """The foreign registry, and what the control store has of it."""

    schemas: tuple[int, ...] = ()  # the schema that the registry has of each writer, 0 for none
    away: bool = False  # the registry does not answer
    denied: frozenset[Writer] = frozenset()  # of which the registry itself said that it has no schema
    answers: tuple[Answer, ...] = ()
    needs: tuple[tuple[Writer, int], ...] = ()  # open ones, and how often the registry said that it has no such schema

    def schema_of(self, writer: Writer) -> int:
        """Return the schema that the registry has of a writer now."""
        return self.schemas[writer - 1]

    def meaning(self, writer: Writer, version: int) -> int | None:
        """Return a writer's schema in a schema set, 0 where it is refused, None where the set lacks the writer."""
        for answer in reversed(self.answers):
            if answer.writer == writer and answer.number <= version:
                return answer.schema
        return None


class File(NamedTuple):
    """A data file of a game's table."""

    generation: int
    rows: tuple[Row, ...]


class Table(NamedTuple):
    """A game's table: each change of it is one atomic commit to its log."""

    files: tuple[File, ...] = ()
    cursors: tuple[int, ...] = (0,)  # by generation
    repairs: int = 0  # moved by every replay, rebuild and removal of stale twins
    decoded: frozenset[tuple[Row, int]] = frozenset()  # of rows of foreign writers: the schema they landed with

    @property
    def generation(self) -> int:
        """The newest generation."""
        return len(self.cursors)

    @property
    def cursor(self) -> int:
        """The newest generation's cursor."""
        return self.cursors[-1]

    def cursor_of(self, generation: int) -> int:
        """Return a generation's cursor."""
        return self.cursors[generation - 1] if generation <= len(self.cursors) else 0


class Refusals(NamedTuple):
    """A game's rows in quarantine, as the set they are."""

    rows: frozenset[Row] = frozenset()
    removals: int = 0  # moved by every removal of stale twins, and by every rebuild


class Stream(NamedTuple):
    """A game's stream as one driver remembers it."""

    generation: int
    cursor: int
    through: int  # complete_through: bronze was seen to hold nothing more for the game up to here
    behind: bool = False
    claim: str = ""  # who reads it: the shared pass, the own query's pass, or a chunk
    leaving: bool = False  # it was moved away, but is still being read
    own: bool = False  # has a query of its own, as last heard
    waits: Need | None = None  # for a newer schema set


class Item(NamedTuple):
    """A pass's or chunk's work on one game: the rows it read, and when."""

    game: Game
    generation: int
    cursor: int  # from which its rows were split
    # chosen, ready, idle (nothing to apply), apart (does not connect), held (waits), committed, failed
    state: str
    rows: tuple[Row, ...] = ()
    refused: frozenset[Row] = frozenset()
    to: int = 0  # the cursor after its commit
    live: bool = True  # the roster still holds the stream that was read
    waits: Need | None = None  # what its further rows wait for
    decoded: frozenset[tuple[Row, int]] = frozenset()  # of rows of foreign writers: the schema


class Work(NamedTuple):
    """A pass or chunk that is under way."""

    step: str  # chosen, split, written (quarantine is), ended
    version: int  # of the schema set
    low: int
    high: int
    ceiling: int  # bronze's head when it began
    whole: tuple[Game, ...]  # complete up to the frontier when it began
    items: tuple[Item, ...]


class Query(NamedTuple):
    """A game's own query, as its driver remembers it."""

    frontier: int
    passed: int


class Driver(NamedTuple):
    """The memory of one driver's process; lost when it crashes."""

    streams: tuple[Stream | None, ...]
    frontier: int
    shared: Work | None = None
    chunk: Work | None = None
    own: tuple[Work | None, ...] = ()
    queries: tuple[Query | None, ...] = ()
    answer: tuple[Writer, int] | None = None  # what the registry answered, not yet in the control store


class Pinned(NamedTuple):
    """The pin with which a begun chunk is repeated, for one of its games."""

    game: Game
    version: int  # of the schema set
    high: int  # the chunk's last seq


class Checkpoint(NamedTuple):
    """The files that a driver leaves on disk."""

    begun: bool = False  # its query has started once
    passed: int = 0  # the last seq of the batches that Spark has as done
    planned: int = 0  # the last seq of the batch that Spark has planned and not done, 0 for none
    pin: int = 0  # the schema set pinned for that batch, 0 for none
    chunk: tuple[Pinned, ...] = ()  # what chunks are repeated with, in the order of the games


class Repair(NamedTuple):
    """A replay, rebuild, removal of stale twins or compaction that is under way: what it read so far."""

    kind: str
    game: Game
    step: str
    repairs: int = 0
    removals: int = 0
    generation: int = 0
    version: int = 0
    through: int = 0
    rows: tuple[Row, ...] = ()
    places: frozenset[Row] = frozenset()
    files: tuple[File, ...] = ()
    decoded: frozenset[tuple[Row, int]] = frozenset()


class Budget(NamedTuple):
    """How often each accident or wish may still happen."""

    crashes: int = 0
    failures: int = 0  # of single commits
    schemas: int = 0  # registrations
    moves: int = 0
    flips: int = 0  # of the decision that a game has a query of its own
    restores: int = 0  # of bronze from an older copy
    adoptions: int = 0
    attempts: int = 2  # of all repairs that find themselves overtaken
    outages: int = 0  # of the registry
    uploads: int = 0  # of a schema that the registry lacked
    lies: int = 0  # the registry gives a writer another schema than before


class State(NamedTuple):
    """The whole system at one moment."""

    bronze: Bronze
    hidden: Bronze  # what an older copy of bronze lacks
    ingest: Ingest
    schemas: int  # the newest schema set
    tables: tuple[Table, ...]
    quarantine: tuple[Refusals, ...]
    owners: tuple[int, ...]  # by game; EVERYBODY: each driver takes it for its own
    own: tuple[bool, ...]
    recorded: tuple[int, ...]  # the generation of each game's table as the control store has it
    drivers: tuple[Driver | None, ...]
    checkpoints: tuple[Checkpoint, ...]
    repairs: tuple[Repair | None, ...]  # by slot
    done: tuple[bool, ...]  # by slot
    budget: Budget
    alarms: tuple[str, ...] = ()  # what the system itself held to be damage, or what was done otherwise than before
    lookup: Lookup = Lookup()


EVERYBODY: Final = -3


@dataclass(frozen=True)
class Rules:
    """The protocol's rules to keep its laws; each can be left out, and then a law breaks."""

    commit_expects_split_position: bool = True
    claims: bool = True
    chain_check: bool = True
    compare_and_set: bool = True
    quarantine_before_commit: bool = True
    schema_pin: bool = True
    new_generation: bool = True
    retire_old_generation: bool = True
    replay_checks_repairs: bool = True
    replay_looks: bool = True
    replay_up_to_cursor: bool = True
    rebuild_checks_repairs: bool = True
    rebuild_checks_removals: bool = True
    rebuild_has_todays_schemas: bool = True
    rebuild_reads_on: bool = True
    removal_looks: bool = True
    removal_moves_counter: bool = True
    removal_checks_removals: bool = True
    compaction_checks_files: bool = True
    bronze_skips_landed_batch: bool = True
    bronze_compared_at_start: bool = True
    adoption_compares_bronze: bool = True
    last_seqs_continue: bool = True
    complete_as_far_as_read: bool = True
    chunks_are_repeated_first: bool = True
    rows_stop_before_a_need: bool = True
    unknown_writers_wait: bool = True
    each_row_by_its_own_writer: bool = True
    rows_before_a_need_land: bool = True
    games_that_wait_are_not_read: bool = True
    the_first_schema_counts: bool = True
    away_decides_nothing: bool = True


@dataclass(frozen=True)
class Scenario:
    """How large the world is."""

    batches: tuple[Batch, ...]  # of the source
    games: int = 1
    landed: int = 0  # batches in bronze at the beginning
    drivers: int = 1
    assigned: tuple[int, ...] | None = None  # None: every driver takes every game for its own
    budget: Budget = Budget()  # noqa: RUF009 - immutable
    repairs: tuple[tuple[str, Game], ...] = ()
    chunk_seqs: int = 8
    schemas: int = 1
    kept_files: bool = False  # whether it matters which rows share a file
    any_order: bool = True  # of the commits of one pass; False: by game
    ingest_steps: bool = False  # whether ingest may stop between bronze and its checkpoint
    late_report: bool = False  # whether drivers may run between a commit of bronze and the word of it
    advances: bool = True  # whether a driver may count all of bronze as passed while its query rests
    started: bool = True  # drivers run at the beginning
    writers: tuple[int, ...] = ()  # of a foreign registry: the schema that it has of each, 0 for none
    rules: Rules = field(default_factory=Rules)
