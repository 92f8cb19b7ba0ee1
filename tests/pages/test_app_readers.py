"""The pages' readers: what they read is kept for a moment, and shared by all viewers of one environment."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st
from sqlalchemy import Engine

from app.access import queries
from app.access.queries import ResolvedCatalog
from app.game.queries import game_versions
from app.state import services
from app.state.services import Environment
from grants.applying import drift_store
from grants.observing.matrix import matrix
from grants.observing.resolver import Resolver
from pipeline.api import versions
from pipeline.api.versions import GameVersions
from pipeline.base.names import GameKey
from tests.browser.seed import Seeded, seed
from tests.unit.grants.grants_world import catalog_snapshot


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    seed(tmp_path, [Seeded("one", "a", {})], now=time.time(), history=False)
    st.cache_data.clear()
    st.cache_resource.clear()
    yield services.open_environment(["--env-dir", str(tmp_path)], {})
    st.cache_data.clear()
    st.cache_resource.clear()


def test_a_reading_is_kept_by_store_and_arguments(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that changed need no new reading; another game, or another store in the same folder, needs its own."""
    read: list[str] = []

    def read_versions(_engine: Engine, key: str) -> dict[GameKey, GameVersions]:
        read.append(key)
        return {}

    monkeypatch.setattr(versions, "read_versions", read_versions)
    changed = replace(environment, settings=replace(environment.settings, environment="other"))
    for each in (environment, environment, changed):
        game_versions(each, "one")
    assert read == ["one"]
    game_versions(environment, "two")
    game_versions(replace(environment, store="a new file"), "one")
    assert read == ["one", "two", "one"]
    game_versions.clear()
    game_versions(environment, "one")
    assert read == ["one", "two", "one", "one"]


def test_drift_is_kept_by_snapshot(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings of an earlier snapshot never stand beside a newer one."""
    read: list[float] = []
    monkeypatch.setattr(drift_store, "in_snapshot", lambda _engine, seen: read.append(seen.read_at))
    for read_at in (1.0, 1.0, 2.0):
        seen = replace(catalog_snapshot(), read_at=read_at)
        resolver = Resolver(seen)
        queries.drift(environment, ResolvedCatalog(seen, resolver, matrix(resolver, None, []), {}, {}))
    assert read == [1.0, 2.0]
