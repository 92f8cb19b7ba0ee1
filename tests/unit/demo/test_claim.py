"""A second demo: its ports move, and a folder that others use is refused with their names, before anything starts."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from grants.catalogs.opening import PORT_FILE, TOKEN_FILE, embedded
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control.present import DEMO, note
from pipeline.demo import claim
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.processes.leases import Lease
from tests.unit.store.leases_world import elsewhere


@pytest.mark.proves("G277")
def test_a_folder_with_a_demo_is_refused_with_its_address(tmp_path: Path) -> None:
    """Two demos never work on one environment: the second ends at once and names the first."""
    settings, paths = load(tmp_path, {})
    with claim.own_folder(settings, paths, claim.LIVE):
        note(paths, DEMO, "http://127.0.0.1:8501")
        refused = CliRunner().invoke(cli, ["demo", "--env-dir", str(tmp_path)]).exception
        assert isinstance(refused, Refused)
        assert f"{tmp_path} is in use by the demo at http://127.0.0.1:8501 (process " in str(refused)
        assert f"`turnout stop --env-dir {tmp_path}`" in str(refused)
    with claim.own_folder(settings, paths, claim.LIVE):
        pass  # it was given back


@pytest.mark.proves("G277")
def test_a_folder_with_a_driver_is_refused_with_its_process(tmp_path: Path) -> None:
    """A demo beside a controller or an ingest driver would start both again and again; drivers of groups it adopts."""
    settings, paths = load(tmp_path, {})
    engine = open_store(settings, paths)
    Lease(engine, "group", "a", 30, elsewhere(7)).acquire()
    with claim.own_folder(settings, paths, claim.LIVE):
        pass
    with (
        pytest.raises(Refused, match=r"in use by group a \(process 7\) on host-7\."),
        claim.own_folder(settings, paths, claim.BOUNDED),
    ):
        pass
    Lease(engine, "ingest", "main", 30, elsewhere(8)).acquire()
    with (
        pytest.raises(Refused, match=r"in use by ingest \(process 8\) on host-8\."),
        claim.own_folder(settings, paths, claim.LIVE),
    ):
        pass


@pytest.mark.proves("G277")
def test_ports_in_use_move(tmp_path: Path) -> None:
    """Each port of a demo is free: one in use becomes another, named in one line and handed to all processes."""
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
            each.listen()
        dashboard, catalog = one.getsockname()[1], two.getsockname()[1]
        environ = {"TURNOUT_DASHBOARD__PORT": str(dashboard), "TURNOUT_ACCESS__PORT": str(catalog)}
        ports = claim.free(load(tmp_path, environ)[0])
    moved, _ = load(tmp_path, {**environ, **ports.environ})
    assert {moved.dashboard.port, moved.access.port}.isdisjoint({dashboard, catalog})
    assert (ports.settings.dashboard.port, ports.settings.access.port) == (moved.dashboard.port, moved.access.port)
    assert ports.lines == (
        f"port {dashboard} is in use: the dashboard takes {moved.dashboard.port}",
        f"port {catalog} is in use: the embedded catalog takes {moved.access.port}",
    )
    assert claim.free(moved).lines == ()


@pytest.mark.proves("G277")
def test_a_catalog_is_found_at_the_port_it_took(tmp_path: Path) -> None:
    """Commands of another terminal reach the catalog of a demo whose port has moved."""
    settings, paths = load(tmp_path, {})
    paths.catalog.mkdir()
    (paths.catalog / TOKEN_FILE).write_text("secret")
    assert embedded(settings.access, paths).rest.url == f"http://127.0.0.1:{settings.access.port}"
    (paths.catalog / PORT_FILE).write_text("4711")
    assert embedded(settings.access, paths).rest.url == "http://127.0.0.1:4711"
