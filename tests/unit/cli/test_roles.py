"""Every command is known as one that reads, one that runs a process, or an act with a role and an audit entry."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from docs.generate import commands
from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.data.contracts.given_ids import GivenIds
from pipeline.data.contracts.kept_registrations import Kept
from pipeline.data.contracts.schemas import PLAIN
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Paths, load
from pipeline.store import audit
from pipeline.store.database.engine import open_store, writing
from pipeline.store.database.report_tables import book_reopenings
from pipeline.store.database.states import OperationState
from pipeline.store.database.tables import schema_requests
from pipeline.store.edge_producers import EdgeProducer
from pipeline.store.edge_producers import apply as apply_producers
from pipeline.store.games import record_seen
from pipeline.store.groups import Group, create
from pipeline.store.onboarding import OnboardingCandidate, onboard
from pipeline.store.operations import Intent, change, operation, submit
from pipeline.store.schema_needs import OpenNeed, RegistryHealth, write_needs, write_state
from tests.checkout import ROOT
from tests.unit.cli.role_commands import READS

RUNS = {  # who may start a process on the machine may do what it does, and write the files of its servers
    "demo break", "demo mend",  # by the demo's own process, which checks the role: demo/breaking/breaker.py
    "alerts write", "simulate", "ingest run", "edge run", "dashboard", "maintain", "demo", "controller run",
    "groups run",
    "catalog serve", "setup", "deploy build",
    # by their own rights in the workspace; the group of a new store passes the gate: deploy/opening.py
    "deploy plan", "deploy diff", "deploy apply", "deploy drift", "deploy adopt", "deploy uninstall",
    "metrics serve", "try-managed",
}  # fmt: skip
OPERATIONS = {  # their role is checked where they are submitted, and again by the controller
    "games approve", "games rename", "groups start", "groups stop", "groups restart", "groups propose", "groups drain",
    "move", "pause", "resume", "repair retry", "repair replay", "repair dedupe", "repair rebuild", "games retire",
    "games restore", "schemas accept-type", "schemas withdraw-type", "schemas keep-views",
    "schemas drop-views",
    "schemas pin-variations", "schemas unpin-variations", "schemas refuse-variation", "schemas allow-variation",
    "schemas merge",
    "schemas declare", "schemas undeclare", "derived pause", "derived resume", "derived repair",
    "ops resume", "ops close", "ops cancel", "ops undo",
    "grants apply", "grants undo", "grants expire",
    "grants drift", "grants approve", "grants reject", "grants withdraw",
}  # fmt: skip
REQUEST: Final = "0af3"
RULES: Final = str(Path(__file__).with_name("rules.yaml"))
CONTRACTS: Final = str(Path(__file__).with_name("contracts.yaml"))
PRODUCERS: Final = str(Path(__file__).with_name("producers.yaml"))
DERIVED: Final = str(Path(__file__).with_name("derived.yaml"))
ACTS = {
    "games propose": (("Chess", "--reason", "new"), "propose a game"),
    "games reject": (("Chess",), "reject a game"),
    "games priority": (("Go", "high", "--reason", "new"), "set a priority"),
    "games rules apply": ((RULES, "--reason", "new"), "apply onboarding rules"),
    "contracts apply": ((CONTRACTS, "--reason", "new"), "apply output contracts"),
    "derived apply": ((DERIVED, "--reason", "new"), "apply derived streams"),
    "edge producers apply": ((PRODUCERS, "--reason", "new"), "apply edge producers"),
    "edge producers revoke": (("chess", "--reason", "leaked"), "revoke an edge producer"),
    "books close": (("Go", "2026-11-29", "--reason", "signed"), "close a day"),
    "books reopen": (("Go", "2026-11-29", "--reason", "wrong"), "reopen a day"),
    "books approve": ((REQUEST,), "approve a reopening"),
    "books reject": ((REQUEST, "--reason", "no"), "reject a reopening"),
    "groups create": (("b", "--cores", "2"), "create a group"),
    "groups set": (("a", "--priority", "high"), "change a group"),
    "groups remove": (("a", "--reason", "old"), "remove a group"),
    "schemas register": (("--game", "Go", "--message", "m.M", __file__), "register a schema"),
    "schemas approve": ((REQUEST,), "approve a schema"),
    "schemas reject": ((REQUEST, "--reason", "no"), "reject a schema"),
    "schemas trust": (("main", "--reason", "rebuilt"), "trust a registry"),
    "schemas give-up": (("old", "--reason", "rebuilt"), "give up a registry"),
    "schemas accept-loss": (("Go", "--reason", "gone"), "accept lost schemas"),
    "ingest adopt": ((), "adopt a source"),
    "stream own-query": (("Go", "on"), "set an own query"),
    "stream accept-gap": (("Go", "--reason", "gone"), "accept a gap"),
    "stop": ((), "stop the environment"),
    "catalog add-user": (("zoe@example.com",), "add a user"),
    "catalog relocate": (("former", "--reason", "moved"), "relocate tables"),
}


@pytest.mark.proves("G127")
def test_every_command_is_sorted() -> None:
    """A new command does not act before somebody has said which role it takes."""
    names = [name.removeprefix("turnout ") for name, _ in commands()]
    kinds = [READS, RUNS, OPERATIONS, set(ACTS)]
    assert sorted(names) == sorted(name for kind in kinds for name in kind)


def test_no_command_has_a_gate_of_its_own() -> None:
    """Commands open an environment, check a role and write an audit entry through their context; pages submit alike."""
    alone = re.compile(r"\b(current_user|audit\.acting|operations\.ask|open_store|roles\.\w*)\(|control\.roles import")
    files = [*ROOT.glob("pipeline/cli/*.py"), *ROOT.glob("grants/cli/*.py")]
    found = {path.name for path in files if alone.search(path.read_text("utf-8"))}
    assert found == {"context.py", "tables.py"}  # verify opens no store where there is nothing to look for in it
    writes = re.compile(r"store\.groups import .*\b(create|change)\b")  # by control/group_proposals.py alone
    assert [path.name for path in [*files, *ROOT.glob("app/**/*.py")] if writes.search(path.read_text("utf-8"))] == []
    pages = [path for folder in ("app", "grants/applying") for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in pages if re.search(r"operations\.ask\(|import .*\bask\b", path.read_text("utf-8"))] == []


def test_below_the_gate_nobody_begins_an_act_by_themselves() -> None:
    """Only the gate opens an act around what it does; the other entries are of the very transaction that writes it."""
    begun = re.compile(r"\baudit\.(acting|begin)\(")
    files = [path for package in ("app", "grants", "pipeline") for path in (ROOT / package).rglob("*.py")]
    found = {(str(path.relative_to(ROOT)), each) for path in files for each in begun.findall(path.read_text("utf-8"))}
    assert found == {
        ("pipeline/control/gate.py", "acting"), ("pipeline/store/operations.py", "begin"),
        ("pipeline/store/operations.py", "begin"), ("pipeline/store/groups.py", "begin"),
        ("pipeline/store/games.py", "begin"),
        ("pipeline/store/output_contracts.py", "begin"), ("pipeline/store/derived.py", "begin"),
        ("pipeline/store/edge_producers.py", "begin"),
        ("pipeline/store/onboarding_rules.py", "begin"), ("pipeline/store/game_proposals.py", "begin"),
        ("grants/applying/requests.py", "begin"),
        ("grants/applying/drift_store.py", "begin"),
        ("pipeline/demo/breaking/breaker.py", "acting"),  # a fault ends whoever has which role by then
    }  # fmt: skip


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.proves("G127")
def test_an_act_needs_its_role(name: str, tmp_path: Path) -> None:
    """A person whom no role names is refused with the missing role, and nothing is written."""
    (tmp_path / "turnout.toml").write_text('[roles]\nmovers = ["max"]\n')
    refused, found = run_act(name, tmp_path)
    assert isinstance(refused, Refused)
    assert f"may not {ACTS[name][1]}: it needs the role" in str(refused)
    assert found == []


EMPTY: Final = {
    "backend": "none", "desired": "drained", "capacity_cores": None, "priority": "normal", "spark_master": None,
}  # fmt: skip
RULE: Mapping[str, object] = {
    "name": "others", "names": [], "prefixes": ["studio-"], "group": None, "priority": "normal", "policies": {},
    "readers": [], "max_new_per_hour": 10, "changed_by": current_user(), "event_types": [], "formats": [],
}  # fmt: skip
CONTRACT: Mapping[str, object] = {
    "name": "scores", "games": ["Go"], "prefixes": [], "by_rules": [], "event_types": [],
    "readers": [], "protovalidate": "off", "freshness": None, "unique": None,
    "rules": [{
        "name": "points", "column": "points", "action": "warn", "required": False, "type": None, "min": 0, "max": None,
        "pattern": None, "allowed": [], "min_length": None, "max_length": None, "forbidden": [], "within": False,
        "skip": None,
    }],
}  # fmt: skip
SILVER: Mapping[str, object] = {
    "kind": "silver", "name": "go_sold", "game": "Go", "type": None, "within": 3600, "id": "_event_id",
    "mask": [["email", "hash"]],
}  # fmt: skip
CHESS: Final = EdgeProducer("chess", "0" * 64, ("Chess",))
SENDER: Mapping[str, object] = {
    "name": "go-servers", "token_sha256": f"{'0' * 62}aa", "games": ["Go"], "prefixes": [], "expires_at": None,
    "events_per_second": None, "revoked": False, "certificate": "",
}  # fmt: skip
REVOKED: Mapping[str, object] = {
    **SENDER, "name": "chess", "token_sha256": "0" * 64, "games": ["Chess"], "revoked": True,
}  # fmt: skip
PROPOSAL: Mapping[str, object] = {
    "game_key": game_key("Chess"), "game": "Chess", "proposed_by": current_user(), "reason": "new",
    "events_per_second": None, "group": None, "priority": None, "readers": [], "format": None, "message": None,
}  # fmt: skip
ASKED: Final = {
    "game": "Go", "message": "m.M", "format": "protobuf", "policies": [], "plan": "0" * 16, "reason": "",
    "request": REQUEST, "requester": "ann",
}  # fmt: skip
REOPENING: Final = {"day": "2026-11-29", "revision": 1, "request": REQUEST, "requester": "ann"}
ENTRIES: Mapping[str, tuple[str, str, Mapping[str, object]]] = {
    "games propose": ("propose a game", f"game:{game_key('Chess')}", PROPOSAL),
    "games reject": ("refuse", f"game:{game_key('Chess')}", {"game": "Chess", "reason": None}),
    "games priority": ("set a priority", "game:go", {"priority": "high", "before": {"go": "normal"}, "reason": "new"}),
    "games rules apply": ("apply onboarding rules", "rules", {"reason": "new", "rules": [RULE]}),
    "contracts apply": ("apply output contracts", "contracts", {"reason": "new", "contracts": [CONTRACT]}),
    "derived apply": ("apply derived streams", "derived", {"reason": "new", "derived": [SILVER]}),
    "edge producers apply": ("apply edge producers", "producers", {"reason": "new", "producers": [SENDER]}),
    "edge producers revoke": ("revoke an edge producer", "chess", {"reason": "leaked", "producers": [REVOKED]}),
    "groups create": ("create group", "group:b", {**EMPTY, "desired": "running", "capacity_cores": 2.0, "reason": ""}),
    "groups set": ("change group", "group:a", {**EMPTY, "priority": "high", "reason": ""}),
    "groups remove": ("remove group", "group:a", {**EMPTY, "reason": "old"}),
    "stop": ("stop the environment", "environment:local", {"reason": ""}),
    "stream own-query": ("set an own query", "game:go", {"own_query": "on"}),
    "books reject": ("reject a reopening", "game:go", {**REOPENING, "reason": "no"}),
    "schemas reject": ("reject a schema", f"game:{game_key('Go')}", {**ASKED, "reason": "no"}),
    "schemas give-up": ("give up a registry", "registry:old", {"reason": "rebuilt", "writers": ["0000000007"]}),
    "schemas accept-loss": (
        "accept lost schemas", f"game:{game_key('Go')}", {"reason": "gone", "game": "Go", "schemas": [7]}
    ),
    "schemas trust": ("trust a registry", "registry:main", {"reason": "rebuilt", "seen": "7 changed", "since": 1.0}),
}  # fmt: skip
FAIL: Mapping[str, tuple[str, tuple[str, ...], Mapping[str, object]]] = {
    "schemas register": ("register a schema", (f"game:{game_key('Go')}",), {
        "game": "Go", "message": "m.M", "format": "protobuf", "policies": [], "plan": None, "reason": "",
    }),
    "schemas approve": ("approve a schema", (f"game:{game_key('Go')}",), ASKED),
    "ingest adopt": ("adopt a source", (), {"accept_loss": False}),
    "stream accept-gap": ("accept-gap", ("game:go",), {"reason": "gone"}),
    "books close": ("close a day", ("game:go",), {"day": "2026-11-29", "reason": "signed"}),
    "books reopen": ("reopen a day", ("game:go",), {"day": "2026-11-29", "reason": "wrong"}),
    "books approve": ("approve a reopening", ("game:go",), {**REOPENING, "reason": ""}),
    "catalog add-user": ("add a user", (), {"groups": []}),
    "catalog relocate": ("relocate tables", (), {"former": str(Path("former").absolute()), "reason": "moved"}),
}  # fmt: skip
"""Acts that have nothing to act on in an environment without tables and a catalog."""


def run_act(name: str, folder: Path, *more: str) -> tuple[BaseException | None, list[tuple[Any, ...]]]:
    """Let a person act where there is a game and an empty group; return what it ended with, and the entries of it."""
    engine = open_store(*load(folder))
    record_seen(engine, {"go": "Go"}, 1, placing())
    create(engine, Group("a", desired="drained"), "ann", "", placing())
    with writing(engine) as connection:
        connection.execute(schema_requests.insert().values(
            request_id=REQUEST, requester="ann", game_key=game_key("Go"), game="Go", format="protobuf", message="m.M",
            definition=b"", policies="{}", plan="[]", plan_hash="0" * 16, reason="new", state="asked", requested_at=1.0,
            new_type=0,
        ))  # fmt: skip
        connection.execute(book_reopenings.insert().values(
            request_id=REQUEST, requester="ann", game_key="go", day=1_795_910_400_000_000, day_seconds=86_400,
            revision=1, reason="wrong", state="asked", requested_at=1.0,
        ))  # fmt: skip
        write_state(connection, RegistryHealth("main", "mistrusted", 1.0, "7 changed", 1.0))
    lost = Kept(game_key("Go"), 7, "0" * 64, "m.M", PLAIN)
    given = GivenIds(load(folder)[1].bronze)
    given.refresh()
    given.keep([lost])
    write_needs(engine, [OpenNeed("old", b"\0\0\0\0\7", game_key("Go"), "Go", 1.0, 1, 0)])
    apply_producers(engine, [CHESS], 0, "ann", "new", action="apply edge producers", target="producers")
    before = len(list(audit.entries(engine)))
    done = CliRunner().invoke(cli, [*name.split(), *ACTS[name][0], *more, "--env-dir", str(folder)])
    found = list(audit.entries(engine))[before:]
    return done.exception, [(each.action, each.targets, dict(each.detail), each.phase, each.outcome) for each in found]


def test_each_act_is_tried_below() -> None:
    """No act is without a look at its audit entry."""
    assert sorted([*ENTRIES, *FAIL]) == sorted(ACTS)


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.proves("G127")
def test_an_act_is_audited(name: str, tmp_path: Path) -> None:
    """A person's act is in the audit log, begun and ended, also where it is no operation."""
    action, target, detail = ENTRIES[name]
    failed, found = run_act(name, tmp_path)
    assert failed is None, failed
    assert found == [(action, (target,), detail, *end) for end in (("begun", None), ("ended", "succeeded"))]


def test_a_removed_group_leaves_no_target(tmp_path: Path) -> None:
    """Prometheus asks no more for a driver that was killed once its group is removed, and for others as before."""
    paths = Paths(tmp_path)
    paths.targets.mkdir()
    for name in ("a", "b"):
        paths.target("group", name).write_text("[]")
    failed, _ = run_act("groups remove", tmp_path)
    assert failed is None, failed
    assert [each.name for each in paths.targets.iterdir()] == ["group-b.json"]


@pytest.mark.parametrize("name", FAIL)
def test_an_act_that_fails_is_audited_as_failed(name: str, tmp_path: Path) -> None:
    """An attempt that was refused by what it is about is in the log, too."""
    action, targets, detail = FAIL[name]
    failed, found = run_act(name, tmp_path)
    assert failed is not None
    if name == "catalog add-user":
        targets = found[0][1]  # grants spells users of the catalog
    assert found == [(action, targets, detail, *end) for end in (("begun", None), ("ended", "failed"))]


def test_a_name_that_is_a_game_is_refused_on_record(tmp_path: Path) -> None:
    """A rejection of a game stands in the log as failed; an impossible name does not."""
    engine = open_store(*load(tmp_path))
    onboard(engine, [OnboardingCandidate(game_key("Chess"), "Chess", "schema")])
    refused = CliRunner().invoke(cli, ["games", "reject", "Chess", "--env-dir", str(tmp_path)])
    assert "is a game" in str(refused.exception)
    assert [each.outcome for each in audit.entries(engine)] == [None, "failed"]
    for name in ("approve", "reject"):
        refused = CliRunner().invoke(cli, ["games", name, "x" * 257, "--env-dir", str(tmp_path)])
        assert "cannot name a game" in str(refused.exception)
    assert audit.verify(engine).entries == 2


@pytest.mark.parametrize(("kind", "role"), [("move", "mover"), ("access", "access_admin"), ("pause", "operator")])
def test_who_acts_on_an_operation_needs_the_role_of_its_kind(kind: str, role: str, tmp_path: Path) -> None:
    """Nobody brings on, closes or cancels what they might not have asked for."""
    (tmp_path / "turnout.toml").write_text('[roles]\nmovers = ["max"]\n')
    engine = open_store(*load(tmp_path))
    submitted = submit(engine, Intent(kind, ("game:go",), "max", "r", {"games": ["go"]}, {}))
    change(engine, change(engine, submitted, OperationState.RUNNING), OperationState.NEEDS_HUMAN, "stuck")
    for act in ("resume", "close", "cancel"):
        words = ["ops", act, submitted.operation_id, "--reason", "r", "--env-dir", str(tmp_path)]
        refused = CliRunner().invoke(cli, words).exception
        assert f"may not {kind}: it needs the role {role}" in str(refused)
    assert operation(engine, submitted.operation_id).state == "needs_human"


def test_an_undo_needs_the_role_before_it_is_planned(tmp_path: Path) -> None:
    """Who may not is told that, whatever is in the row of the operation."""
    (tmp_path / "turnout.toml").write_text('[roles]\nmovers = ["max"]\n')
    engine = open_store(*load(tmp_path))
    done = change(engine, submit(engine, Intent("pause", ("game:go",), "max", "r", {}, {})), OperationState.SUCCEEDED)
    refused = CliRunner().invoke(cli, ["ops", "undo", done.operation_id, "--env-dir", str(tmp_path)])
    assert isinstance(refused.exception, Refused)
    assert "may not resume: it needs the role operator" in str(refused.exception)
