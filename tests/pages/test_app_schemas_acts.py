"""Registering, deciding and trusting on the Schemas page: shown first, then exactly that, by those who may."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from app.state import services
from pipeline.base.names import game_key
from pipeline.control.registering.requests import list_requests
from pipeline.data.contracts.catalogue.versions import read_versions
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.policies import DEFAULTS, landing, parse_policies
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import unattended
from pipeline.data.contracts.schemas import Schema
from pipeline.settings.tree import load
from pipeline.store import audit
from pipeline.store.database.engine import open_store, writing
from pipeline.store.schema_needs import RegistryHealth, read_states, write_state
from pipeline.store.writers import lock
from tests.unit.app.app_world import Opening, again, drawn_alive, fill, name_roles, pages_of, sign_in, texts
from tests.unit.data.contracts.catalogue_world import avro, register
from tests.unit.data.contracts.definition_world import bundle, define

CHESS = game_key("Chess")
PLACE = f"register_{CHESS}"


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    engine = open_store(*load(tmp_path))
    register(engine, avro(player="string", rating="int"), by="ann")
    yield engine
    engine.dispose()


def previewed(opening: Opening, definition: bytes, *policies: str, name: str = "move.avsc") -> AppTest:
    """Open Chess, upload a file and press preview."""
    app = opening("schemas", game=CHESS)
    app.file_uploader(key=f"register_file_{CHESS}").upload(name, definition)
    app.multiselect(key=f"register_policies_{CHESS}").set_value(list(policies))
    return app.button(key=f"preview_register_{CHESS}").click().run()


def versions(engine: Engine, game: str = "Chess") -> list[tuple[int, str | None]]:
    found = read_versions(engine, game_key(game)).get(game_key(game))
    return [] if found is None else [(each.version, each.registered_by) for each in found.versions]


def warned(app: AppTest) -> str:
    return "\n".join(each.value.replace("\\", "") for each in app.warning)


def renewed(app: AppTest) -> AppTest:
    services.forget()
    return again(app)


def second_person(folder: Path, **roles: list[str]) -> None:
    """Let breaking changes wait for a second person, and give people roles."""
    name_roles(folder, **roles)
    settings = folder / "turnout.toml"
    settings.write_text(f"{settings.read_text()}\n[schemas]\nsecond_person = true\n")


def test_an_upload_is_planned_then_registered(store: Engine, opening: Opening) -> None:
    """Nothing is written by the preview; the confirmation registers what was shown, in the person's name, audited."""
    app = previewed(opening, avro(player="string", rating="long", clock="int"))
    assert "clock: is new · add: add -> clock long · old rows have null there" in texts(app)
    assert versions(store) == [(1, "ann")]
    app.button(key=f"ask_{PLACE}").click().run()
    assert "✓ Schema id 2 is version 2 of the game." in texts(app)
    assert versions(store) == [(1, "ann"), (2, services.actor())]
    entries = list(audit.entries(store))
    assert [(each.action, each.phase) for each in entries] == [
        ("register a schema", "begun"),
        ("register a schema", "ended"),
    ]
    assert "What changes from version 1 to version 2" in texts(renewed(app))


def test_a_descriptor_set_makes_a_new_game(store: Engine, opening: Opening) -> None:
    """Without a game on screen the form takes an exact name; a .desc file is protobuf."""
    app = opening("schemas")
    app.text_input(key="register_game_new").set_value("Ludo")
    app.text_input(key="register_message_new").set_value("t.M")
    app.file_uploader(key="register_file_new").upload("m.desc", bundle(define({"M": {"dice": (1, "int32")}})))
    app.button(key="preview_register_new").click().run()
    app.button(key="ask_register_new").click().run()
    assert "✓ Schema id 2 is version 1 of the game." in texts(app)
    assert versions(store, "Ludo") == [(1, services.actor())]


@pytest.mark.parametrize(
    ("definition", "name", "sentence"),
    [
        (avro(player="int", rating="int"), "m.avsc", "1 changes are refused. Choose a policy"),
        (avro(player="string", rating="int"), "m.avsc", "Nothing to register: it is version 1"),
        (b"{", "m.avsc", "Avro"),
        (b"\xff\xff", "m.desc", ""),
    ],
)
def test_an_impossible_registration_is_refused_at_the_preview(
    definition: bytes, name: str, sentence: str, store: Engine, opening: Opening
) -> None:
    """A refused change, a known schema and a file that is no definition have a reason and nothing to confirm."""
    app = previewed(opening, definition, name=name)
    assert app.warning
    assert sentence in warned(app)
    assert [each for each in app.button if str(each.key).startswith("ask_")] == []
    assert versions(store) == [(1, "ann")]


def test_an_incomplete_form_says_what_is_missing(store: Engine, opening: Opening) -> None:
    """Neither a file nor a name is guessed."""
    app = opening("schemas", game=CHESS)
    app.button(key=f"preview_register_{CHESS}").click().run()
    assert "Name the game and the message, and choose a file." in warned(app)


def test_a_plan_that_has_changed_since_is_not_done(store: Engine, opening: Opening) -> None:
    """Where another version was registered after the preview, nothing is written and the page says so."""
    app = previewed(opening, avro(player="string", rating="long"))
    register(store, avro(player="string", rating="int", clock="int"), by="bob")
    app.button(key=f"ask_{PLACE}").click().run()
    assert "Review the plan again" in warned(app)
    assert versions(store) == [(1, "ann"), (2, "bob")]


def test_a_version_whose_rows_are_refused_is_registered_again_with_other_policies(
    store: Engine, opening: Opening
) -> None:
    """Its definition comes from the store; afterwards the page has no trouble left."""
    register(store, avro(player="int", rating="int"), "incompatible=quarantine")
    app = opening("schemas", game=CHESS)
    app.selectbox(key=f"register_what_{CHESS}").set_value("v2")
    app.multiselect(key=f"register_policies_{CHESS}").set_value(["incompatible=side-column"])
    app.button(key=f"preview_register_{CHESS}").click().run()
    app.button(key=f"ask_{PLACE}").click().run()
    assert "is version 3 of the game" in texts(app)
    assert "go to quarantine since" not in texts(renewed(app))


def test_a_version_of_another_event_type_is_let_in_as_a_rename(store: Engine, opening: Opening) -> None:
    """The page names both types; where a person says that one was renamed to the other, the plan shows it."""
    other = json.dumps({"type": "record", "name": "t.Round", "fields": [{"name": "player", "type": "string"}]}).encode()
    schema = Schema(0, "avro", "t.Round", format_of("avro").canonical("t.Round", other))
    with writing(store) as connection:
        waits = unattended("Chess", CHESS, schema, DEFAULTS, registry="main")
        RegistrationBatch(connection, [waits]).write()
    app = opening("schemas", game=CHESS)
    assert "t.Round is another event type than t.M, the game's." in texts(app)
    app.selectbox(key=f"register_what_{CHESS}").set_value("v2")
    app.button(key=f"preview_register_{CHESS}").click().run()
    assert "add --continues t.M if it is that type under a new name" in warned(app)
    app.text_input(key=f"register_continues_{CHESS}").set_value("t.M")
    app.button(key=f"preview_register_{CHESS}").click().run()
    assert "t.Round: continues t.M under a new name" in texts(app)
    app.button(key=f"ask_{PLACE}").click().run()
    assert "is version 3 of the game" in texts(app)
    assert "go to quarantine since" not in texts(renewed(app))


def test_rows_that_are_refused_land_again_by_one_button(store: Engine, opening: Opening) -> None:
    """Beside the reason stands the act that lands a version's next rows; it shows its plan before."""
    register(store, avro(player="int", rating="int"), "incompatible=quarantine")
    app = opening("schemas", game=CHESS)
    app.button(key=f"land_{CHESS}_2").click().run()
    assert versions(store) == [(1, "ann"), (2, None)]
    app.button(key=f"ask_land_{CHESS}").click().run()
    assert "is version 3 of the game" in texts(app)
    assert "go to quarantine since" not in texts(renewed(app))


def test_policies_that_refuse_rows_become_those_that_land_them() -> None:
    """Each kind of change has a policy by which rows land, also a number that another field gets."""
    chosen = parse_policies(["incompatible=quarantine", "add=refuse", "value=quarantine"])
    assert landing(chosen) == parse_policies(["incompatible=side-column", "add=refuse", "value=add"])
    assert landing(parse_policies(["reuse=quarantine"])) == parse_policies(["reuse=side-column"])
    assert landing(parse_policies(["incompatible=side-column"])) is None
    assert landing(parse_policies([]), ["reuse"]) == parse_policies(["reuse=side-column"])


def test_a_breaking_change_waits_for_another_person(
    store: Engine, opening: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requester gives a reason and cannot approve; another person approves exactly the plan that was shown."""
    second_person(tmp_path, operators=["ann", "bob"])
    sign_in(monkeypatch, "ann")
    app = previewed(opening, avro(player="int", rating="int"), "incompatible=side-column")
    app.button(key=f"ask_{PLACE}").click().run()
    assert "Enter a reason" in warned(app)
    fill(app, "ids have numbers now").button(key=f"ask_{PLACE}").click().run()
    assert "nothing is registered yet" in texts(app)
    assert versions(store) == [(1, "ann")]
    (request,) = list_requests(store)
    app = renewed(app)
    assert "1 registration waits for a second person" in texts(app)
    assert app.button(key=f"approve_schema_{request.request_id}").disabled
    sign_in(monkeypatch, "bob")
    app = opening("schemas")
    app.button(key=f"approve_schema_{request.request_id}").click().run()
    assert "player: its type changed from string to int" in texts(app)
    app.button(key="ask_schema_request").click().run()
    assert versions(store) == [(1, "ann"), (2, "ann")]
    assert list_requests(store)[0].decided_by == "bob"
    assert "approved by bob" in texts(renewed(app))


def test_a_request_is_rejected_with_a_reason(
    store: Engine, opening: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reason it stays open; with one it ends, and nothing is registered."""
    second_person(tmp_path, operators=["ann", "bob"])
    sign_in(monkeypatch, "ann")
    app = previewed(opening, avro(player="int", rating="int"), "incompatible=side-column")
    fill(app, "why").button(key=f"ask_{PLACE}").click().run()
    (request,) = list_requests(store)
    sign_in(monkeypatch, "bob")
    app = opening("schemas")
    app.button(key=f"reject_schema_{request.request_id}").click().run()
    ask = "ask_schema_request"
    app.button(key=ask).click().run()
    assert "Enter a reason" in warned(app)
    assert list_requests(store)[0].state == "asked"
    fill(app, "readers need strings").button(key=ask).click().run()
    assert [(each.state, each.decision_reason) for each in list_requests(store)] == [
        ("rejected", "readers need strings")
    ]
    assert versions(store) == [(1, "ann")]


def test_mistrust_of_a_registry_ends_with_a_reason(store: Engine, opening: Opening) -> None:
    """The page shows what turnout saw; only a person with a reason ends it."""
    now = time.time()
    with writing(store) as connection:
        lock(connection)
        write_state(connection, RegistryHealth("main", "mistrusted", now - 60, "schema 7 has another content", now))
    app = opening("schemas")
    assert "✗ mistrusted · main" in texts(app)
    app.button(key="open_trust_main").click().run()
    fill(app, "the backup was put right").button(key="ask_trust_main").click().run()
    with store.connect() as connection:
        assert read_states(connection)["main"].state == "ok"
    assert "mistrusted · main" not in texts(renewed(app))


def test_people_without_the_role_see_and_cannot_act(
    store: Engine, opening: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every act is disabled with the role it needs, and is refused where a page was drawn before the role was lost."""
    app = previewed(opening, avro(player="string", rating="long"))
    name_roles(tmp_path, operators=["ann"])
    app.button(key=f"ask_{PLACE}").click().run()
    assert "it needs the role operator" in warned(app)
    assert versions(store) == [(1, "ann")]
    app = opening("schemas", game=CHESS)
    assert app.button(key=f"preview_register_{CHESS}").disabled
    assert "Needs the role operator" in texts(app)


def test_in_a_workspace_without_roles_nobody_registers(
    store: Engine, opening: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There "no roles" does not mean everybody: a person of the platform may only look."""
    app = previewed(opening, avro(player="string", rating="long"))
    sign_in(monkeypatch, "ann@example.com", by_platform=True)
    app.button(key=f"ask_{PLACE}").click().run()
    assert "No roles are set" in warned(app)
    assert versions(store) == [(1, "ann")]


def test_names_in_an_uploaded_definition_do_not_act(store: Engine, opening: Opening) -> None:
    """Names of symbols and messages of an upload reach preview and refusal as text."""
    hostile: dict[str, Any] = json.loads(avro(player="string", rating="int"))
    hostile["fields"].append({"name": "**bold** [click](javascript:alert(1))", "type": "int"})
    app = previewed(opening, json.dumps(hostile).encode())
    assert app.warning
    assert not any(part in drawn_alive(app) for part in ("**bold", "](", "javascript:alert"))


def test_a_plan_of_very_many_changes_is_cut_and_keeps_what_breaks(store: Engine, opening: Opening) -> None:
    """A page that drew a line for each new value of a huge enum would not come back; breaking lines come first."""
    values = [f"V{number}" for number in range(2_000)]
    register(store, avro(player="string", rating="int", e={"type": "enum", "name": "E", "symbols": values[:1]}))
    app = previewed(opening, avro(player="string", e={"type": "enum", "name": "E", "symbols": values}))
    shown = texts(app)
    assert shown.count("has the new value") < 250
    assert "! rating: removed" in shown
    assert "more; turnout schemas plan prints all" in shown
    assert "plan " in shown
    app.button(key=f"ask_{PLACE}").click().run()
    shown = texts(renewed(app))
    assert "`turnout schemas diff` prints all" in shown
    assert "`turnout schemas show` prints all" in shown
    assert shown.count("has the new value") < 450
