"""The matrix says of each cell what the resolver says."""

from dataclasses import replace
from random import Random

import pytest

from grants.model import folded
from grants.observing.matrix import matrix, ways
from grants.observing.resolver import Resolver
from pipeline.base.errors import Refused
from tests.unit.grants.grants_world import CATALOG, SCHEMA, catalog_snapshot, random_catalog, table_of


def test_each_cell_is_the_resolvers_verdict() -> None:
    """Over random catalogs a cell reads, does not, could, or is not known, as the verdict with its why says."""
    for seed in range(200):
        resolver = Resolver(random_catalog(Random(seed)))
        found = matrix(resolver, principals=[*resolver.observed.directory.principals, "account users", "stranger"])
        for who in found.columns:
            for key in found.keys:
                verdict = resolver.verdict(who, key)
                no = "could" if verdict.could_grant_itself else "no"
                assert found.cell(who, key) == {True: "reads", False: no, None: "unknown"}[verdict.reads], seed


def test_cells_are_counted_by_game_and_by_principal() -> None:
    """Counts add up, and what is not known is counted as that."""
    held = {CATALOG: {"account users": {"USE_CATALOG", "USE_SCHEMA"}}, table_of("chess"): {"ann@x": {"SELECT"}},
            SCHEMA: {"bob@x": {"MANAGE"}}}  # fmt: skip
    observed = catalog_snapshot(held)
    direct = {where: names for where, names in observed.direct.items() if where != table_of("go")}
    found = matrix(Resolver(replace(observed, direct=direct)), principals=["BOB@x", "ann@x"])
    assert (found.keys, list(found.columns)) == (("chess", "go"), ["bob@x", "ann@x"])
    assert found.counts == {"reads": 1, "could": 1, "unknown": 2}
    assert found.by_key == {"chess": {"could": 1, "reads": 1}, "go": {"unknown": 2}}
    assert found.by_principal == {"bob@x": {"could": 1, "unknown": 1}, "ann@x": {"reads": 1, "unknown": 1}}


def test_rows_and_columns_are_those_that_were_asked_for() -> None:
    """By default there is everybody and each table; games that the catalog does not have are refused."""
    resolver = Resolver(catalog_snapshot())
    assert [folded(each) for each in matrix(resolver).columns] == ["ann@x", "bob@x", "pipeline", "readers"]
    assert matrix(resolver, keys=["go"], principals=[]).by_key == {"go": {}}
    with pytest.raises(Refused, match="has no table of game 'dota'"):
        matrix(resolver, keys=["dota"])


def test_a_reader_has_the_nearest_way() -> None:
    """A grant on the table itself is nearer than one above the tables, and both are told from a group's."""
    use = {"USE_CATALOG", "USE_SCHEMA"}
    held = {
        CATALOG: {"account users": use},
        SCHEMA: {"bob@x": {"SELECT"}},
        table_of("chess"): {"ann@x": {"SELECT"}, "bob@x": {"SELECT"}, "readers": {"SELECT"}},
        table_of("go"): {"readers": {"SELECT"}},
    }
    resolver = Resolver(catalog_snapshot(held))
    found = ways(resolver, matrix(resolver, keys=["chess", "go"], principals=["ann@x", "bob@x", "readers"]))
    in_readers = "readers" in resolver.closure("ann@x")
    assert found == {
        "ann@x": ("direct", "group" if in_readers else None),
        "bob@x": ("direct", "schema"),
        "readers": ("direct", "direct"),
    }


def test_only_readers_have_a_way() -> None:
    """Over random catalogs a cell has a way exactly where it reads."""
    for seed in range(50):
        resolver = Resolver(random_catalog(Random(seed)))
        cells = matrix(resolver)
        for name, column in ways(resolver, cells).items():
            assert [each is not None for each in column] == [state == "reads" for state in cells.columns[name]], seed
