"""A store in which schemas of foreign registries are resolved."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Engine

from pipeline.base.names import game_key
from pipeline.data.contracts.registries.answers import (
    Absent,
    Answer,
    Found,
)
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registries.patience import Patience
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet, Writer
from pipeline.store.schema_needs import (
    OpenNeed,
    RegistryHealth,
    read_needs,
    read_states,
)
from tests.unit.data.contracts.definition_world import bundle, define

SEVEN, EIGHT = b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x00\x08"
NOW = 1_800_000_000.0
CHESS = Need(game_key("Chess"), "Chess", "main", SEVEN, 1, 0)
PATIENCE = Patience(sample=18_000)


def found(messages: Mapping[bytes, str] | None = None, **fields: str) -> Found:
    """Return a file of messages M and N with these fields."""
    types = {name: (number, kind) for number, (name, kind) in enumerate((fields or {"a": "int32"}).items(), start=1)}
    definition = bundle(define({"M": types, "N": {"z": (1, "string")}}))
    return Found("protobuf", definition, {b"": "t.M"} if messages is None else messages)


@dataclass
class World:
    """A registry with one answer, or one for each writer, and a clock that stands until it is moved."""

    engine: Engine
    answer: Answer | dict[bytes, Answer] = field(default_factory=found)
    now: float = NOW  # by the control store's clock
    passed: float = 0.0  # by no clock that anyone sets
    asked: list[bytes] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None  # happens while the registry answers

    def resolve(self, writer: bytes) -> Answer:
        self.asked.append(writer)
        if self.meanwhile is not None:
            self.meanwhile()
        return self.answer.get(writer, Absent("no such id")) if isinstance(self.answer, dict) else self.answer

    def resolution(self, **options: object) -> Resolution:
        chosen = {"patience": PATIENCE, **options}
        return Resolution(
            self.engine,
            {"main": self},
            lambda: self.now,
            steady=lambda: self.passed,
            **chosen,  # type: ignore[arg-type]
        )

    def after(self, resolution: Resolution, seconds: float) -> float:
        self.now += seconds
        self.passed += seconds
        return resolution.step()

    @property
    def needs(self) -> list[OpenNeed]:
        with self.engine.connect() as connection:
            return read_needs(connection)

    def health(self, registry: str) -> RegistryHealth:
        with self.engine.connect() as connection:
            return read_states(connection)[registry]

    @property
    def schemas(self) -> SchemaSet:
        return LocalRegistry(self.engine).snapshot()

    def writer(self, writer: bytes = SEVEN) -> Writer | None:
        return self.schemas.writers.get(("main", writer))

    def state(self) -> tuple[str, float, str | None]:
        health = self.health("main")
        return health.state, health.since - NOW, health.detail
