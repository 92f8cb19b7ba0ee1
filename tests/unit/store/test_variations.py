"""The variations of undeclared JSON in the control store, on both databases."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from pipeline.data.contracts.registry import LocalRegistry
from pipeline.store.database.engine import writing
from pipeline.store.variations import (
    MOST_FORM_BYTES,
    TypeVariations,
    Variation,
    bounded_form,
    count_types,
    count_variations,
    read_variations,
    write_variations,
)
from pipeline.store.writers import lock
from tests.unit.data.contracts.definition_world import bundle, define

FORM = "shape/1\nplayer:text\nscore:whole"


def variation(engine: Engine, **own: object) -> Variation:
    schema_id = LocalRegistry(engine).register("chess", "t.M", bundle(define({"M": {"a": (1, "int32")}}))).schema_id
    one = Variation("chess_k", "joined", "0123456789abcdef", FORM, 2, 7, 3, 100.0, 100.0, 1, schema_id)
    return replace(one, **own)  # type: ignore[arg-type]


def write(engine: Engine, *new: Variation) -> None:
    with writing(engine) as connection:
        lock(connection)
        for each in new:
            write_variations(connection, each.game_key, each.type, [each])


def test_variations_are_read_as_they_were_written(engine: Engine) -> None:
    """The repository keeps each variation once, with the place of its first document, and lists the newest first."""
    one = variation(engine)
    later = replace(one, fingerprint="f" * 16, first_seq=9, first_pos=0, first_seen=200.0, last_seen=250.0, count=5)
    other = replace(one, type="sold", producer="client 7")
    write(engine, one, later, other)
    write(engine, replace(one, first_seq=8, count=99))
    assert read_variations(engine, "chess_k", "joined") == (later, one)
    assert read_variations(engine, "chess_k", most=2) == (later, one)
    assert set(read_variations(engine, "chess_k")) == {later, one, other}
    assert count_types(engine) == (
        TypeVariations("chess_k", "joined", 2, 100.0, 200.0, 250.0, 6),
        TypeVariations("chess_k", "sold", 1, 100.0, 100.0, 100.0, 1),
    )
    assert count_types(engine, "go_k") == ()
    with engine.connect() as connection:
        assert count_variations(connection, "chess_k", "joined") == 2


def test_a_long_form_is_cut_between_facts_and_says_how_many_are_left_out(engine: Engine) -> None:
    """A variation of 1,000 facts with long keys would be a megabyte; its fingerprint is of all of them."""
    long = "\n".join(["shape/1", *(f"{'k' * 200}{number}:text" for number in range(1000))])
    write(engine, variation(engine, form=long, facts=1000))
    (held,) = read_variations(engine, "chess_k")
    assert len(held.form.encode()) <= MOST_FORM_BYTES
    assert held.form.startswith("shape/1\nk")
    assert held.form.endswith(":text\nand 981 more")
    assert bounded_form(f"shape/1\n{'é' * 5000}:text") == "shape/1\nand 1 more"
    assert bounded_form(FORM) == FORM


@pytest.mark.parametrize("wrong", ["facts = 0", "count = 0", "first_seq = -1", "schema_id = 77"])
def test_a_variation_of_nothing_is_refused_by_the_database(engine: Engine, wrong: str) -> None:
    """Law L14 of the store: a row that no registration can have written is refused."""
    write(engine, variation(engine))
    with pytest.raises(DBAPIError), engine.begin() as connection:
        connection.execute(text(f"UPDATE variations SET {wrong}"))
