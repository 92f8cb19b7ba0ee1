"""A number of ingest's generations is given to one source, whatever happens to the control store."""

from pathlib import Path

import pytest
from sqlalchemy import delete, insert

from pipeline.data.ingest.generation_numbers import open_generation, take
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store, writing
from pipeline.store.database.tables import ingest_generations
from pipeline.store.sources import generations


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.mark.proves("G261")
def test_another_source_never_gets_the_checkpoint_of_a_lost_generation(paths: Paths) -> None:
    """After a restore of an older store a new source takes a new number, and a known one goes on in its checkpoint."""
    engine = open_store(Settings(), paths)
    assert (open_generation(paths, engine, "a"), open_generation(paths, engine, "b")) == (1, 2)
    with writing(engine) as connection:  # an older copy
        connection.execute(delete(ingest_generations).where(ingest_generations.c.generation == 2))
    assert open_generation(paths, engine, "c") == 3
    assert open_generation(paths, engine, "b") == 2
    assert take(paths, engine, "a") == 4, "an adoption"
    assert [number for number, _, _ in generations(engine)] == [1, 2, 3]
    engine.dispose()


def test_generations_of_an_earlier_turnout_are_taken_at_a_start(paths: Paths) -> None:
    """The first start writes down what each number reads, also of those that were replaced."""
    engine = open_store(Settings(), paths)
    texts = ("a (until generation 1 was replaced)", "a", "b")
    rows = [{"generation": number, "source": text, "created_at": 0.0} for number, text in enumerate(texts, start=1)]
    with writing(engine) as connection:
        connection.execute(insert(ingest_generations), rows)
    assert open_generation(paths, engine, "a") == 2
    kept = {file.name: file.read_text() for file in (paths.root / "registrations").iterdir()}
    assert kept == {"ingest-1": "a", "ingest-2": "a", "ingest-3": "b"}
    engine.dispose()
