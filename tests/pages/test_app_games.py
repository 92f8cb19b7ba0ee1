"""The Games page: names with their evidence, decided as shown; rules, retired and rejected games; Fleet links to it."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from app.state import services
from pipeline.base.names import game_key
from pipeline.control.onboarding.candidates import propose
from pipeline.data.ingest import name_sketch
from pipeline.data.ingest.name_sketch import NameCount, Sketch
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit
from pipeline.store.assignments import read_assignments, retire
from pipeline.store.game_proposals import GameProposal, read_proposals
from pipeline.store.game_proposals import propose as write_proposal
from pipeline.store.onboarding import OnboardingCandidate, RefusedName, onboard, refusals, refuse, write_sketch
from pipeline.store.onboarding_rules import read_rules
from pipeline.store.operations import list_operations
from tests.browser.seed import HOSTILE
from tests.onboarding_world import give_rules, rule
from tests.unit.app.app_world import (
    KEY,
    Opening,
    drawn_alive,
    fill,
    forget_readings,
    four_games,
    links,
    name_roles,
    pages_of,
    texts,
)
from tests.unit.data.contracts.catalogue_world import avro

NEW, DELUXE = game_key("New"), game_key("Chess Deluxe")
PLACE = "game_decision"
RULES = """
version: 1
rules:
  - name: studio
    match: {prefixes: [Chess]}
"""


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with four_games(tmp_path) as engine:
        yield engine


def arrive(engine: Engine, *names: str, error: int = 0) -> None:
    now = time.time()
    counts = {name: NameCount(30 - place, error, now - 3600, now - 5) for place, name in enumerate(names)}
    write_sketch(engine, Sketch(counts, 100, 0, name_sketch.EMPTY.registers).dumps())


def proposed(engine: Engine, folder: Path, name: str = "New") -> None:
    wishes = GameProposal(game_key(name), name, "ann", "next season", 200.0, "b", "high", ("analysts",))
    propose(Settings(), engine, Paths(folder).bronze, wishes)


def frame(app: AppTest, column: str) -> list[str]:
    """Return a column of the first table that has it."""
    found = next(each.value for each in app.dataframe if column in each.value)
    return [str(each) for each in found[column]]


def warned(app: AppTest) -> str:
    return "\n".join(each.value.replace("\\", "") for each in app.warning)


def acted(engine: Engine) -> list[str]:
    return [each.action for each in audit.entries(engine) if each.phase == "ended"]


# ------------------------------------------------------------------------------------------------- names and decisions


def test_names_are_listed_with_their_evidence(store: Engine, tmp_path: Path, opening: Opening) -> None:
    """Proposals come first; a chosen name says what arrived, when, which rule it nearly matches, and its group."""
    give_rules(store, rule(name="studio", prefixes=("chess-",)))
    arrive(store, "Chess Deluxe", "chess ")
    proposed(store, tmp_path)
    app = opening("games", name=DELUXE)
    assert "1 proposed game waits for a decision; ingest refuses rows of 2 names without a game" in texts(app)
    assert frame(app, "name") == ["New", "Chess Deluxe", "'chess '"]
    assert frame(app, "state") == ["['△ proposed']", "['○ waits']", "['○ waits']"]
    assert frame(app, "rows") == ["0", "30", "29"]
    assert frame(app, "group")[0] == "b"
    assert frame(app, "rule")[1] == "nearly studio (prefix 'chess-')"
    said = texts(app)
    assert "30 rows, " in said
    assert "none in quarantine" in said
    assert "envelope wrapper, framing wrapper" in said
    assert app.code[0].value.splitlines() == [
        "turnout games approve -- 'Chess Deluxe'",
        "turnout games reject -- 'Chess Deluxe'",
    ]
    line = "1 proposed game waits for a decision: New · 2 names are no game, so ingest refuses their rows, 59 so far: "
    assert line in texts(opening("fleet"))
    app.selectbox(key="games_chosen").set_value(NEW).run()
    assert "next season" in texts(app)
    assert "nothing, as far as the bounded list of names says" in texts(app)
    assert app.query_params["name"] in (NEW, [NEW])


def test_names_beyond_the_list_count_as_waiting(store: Engine, opening: Opening) -> None:
    """Games and Fleet say how many names wait, not how many the bounded list has room for."""
    flood = name_sketch.sketched(pa.array([f"name {n}" for n in range(3_000)]), pa.array([2] * 3_000), time.time(), 20)
    write_sketch(store, flood.dumps())
    said = texts(opening("games")).replace("\u202f", " ")
    counted = re.search(r"Ingest refuses rows of about ([\d\W]+?) names without a game", said)
    assert counted is not None, said
    assert int(re.sub(r"\D", "", counted[1])) == pytest.approx(3_000, rel=0.05)
    assert f"about {counted[1]} waiting" in said
    assert f"about {counted[1]} names are no game" in texts(opening("fleet")).replace("\u202f", " ")


def test_an_approval_is_one_operation_as_shown(store: Engine, opening: Opening) -> None:
    """The preview says what the game gets; confirmed it is an operation, and the list says that it is under way."""
    arrive(store, "Chess Deluxe")
    app = opening("games", name=DELUXE)
    app.selectbox(key=f"wish_group_{DELUXE}").set_value("b")
    app.selectbox(key=f"wish_priority_{DELUXE}").set_value("high")
    app.button(key=f"game_approve_{DELUXE}").click().run()
    assert "'Chess Deluxe': group b, priority high, by no rule" in texts(app)
    assert list_operations(store) == []
    app.button(key=f"ask_{PLACE}").click().run()
    (done,) = list_operations(store)
    assert (done.kind, done.targets, done.actor) == ("onboard", (f"game:{DELUXE}",), services.actor())
    assert (done.parameters["group"], done.parameters["priority"]) == ("b", "high")
    assert frame(app, "state") == ["['» under way']"]


def test_a_rejection_ends_a_proposal_and_is_undone_by_an_approval(
    store: Engine, tmp_path: Path, opening: Opening
) -> None:
    """The preview names the proposal that ends; the name leaves the list and stands among the rejected ones."""
    proposed(store, tmp_path)
    app = opening("games", name=NEW)
    app.button(key=f"game_reject_{NEW}").click().run()
    assert "The proposal of ann ends: next season" in texts(app)
    assert read_proposals(store)
    fill(app, reason="twice")
    app.button(key=f"ask_{PLACE}").click().run()
    assert "✓ 'New' is rejected." in texts(app)
    assert (read_proposals(store), refusals(store)["New"].reason) == ({}, "twice")
    assert acted(store)[-1] == "refuse"
    assert frame(app, "Name") == ["New"]
    app.selectbox(key="games_rejected_chosen").set_value(NEW).run()
    app.button(key="preview_games_rejected_chosen").click().run()
    app.button(key="ask_game_past").click().run()
    assert [each.kind for each in list_operations(store)] == ["onboard"]


def test_a_name_that_became_a_game_meanwhile_is_refused(store: Engine, opening: Opening) -> None:
    """A preview says why there is nothing to confirm."""
    arrive(store, "Chess Deluxe")
    app = opening("games", name=DELUXE)
    onboard(store, [OnboardingCandidate(DELUXE, "Chess Deluxe", "approval")])
    app.button(key=f"game_reject_{DELUXE}").click().run()
    assert "'Chess Deluxe' is a game; only waiting names can be refused" in warned(app)
    assert refusals(store) == {}


def test_a_person_without_the_role_only_looks(store: Engine, tmp_path: Path, opening: Opening) -> None:
    """Every button that acts is disabled, and the evidence of a name stays visible."""
    arrive(store, "Chess Deluxe")
    name_roles(tmp_path, operators=["somebody-else"], movers=["somebody-else"])
    app = opening("games", name=DELUXE)
    for key in (f"game_approve_{DELUXE}", f"game_reject_{DELUXE}", "preview_propose", "preview_rules"):
        assert app.button(key=key).disabled, key


def test_a_name_that_cannot_be_seen_wholly_is_no_command(store: Engine, opening: Opening) -> None:
    """A name with hidden characters is never printed as a command: who copied it would name another game."""
    arrive(store, *HOSTILE, "Ch\u200bess", error=3)
    key = game_key("Ch\u200bess")
    app = opening("games", name=key)
    assert not [each for each in app.code if "approve" in each.value]
    assert "holds characters that cannot be seen" in texts(app)
    assert frame(app, "rows")[0] == "27 to 30"
    app.button(key=f"game_reject_{key}").click().run()
    assert r"'Ch\u200bess' leaves the list." in texts(app)
    for page in (app, opening("fleet")):
        assert not any(part in drawn_alive(page) for part in ("<script", "**bold", "](", ":red[", "javascript:"))


def test_foreign_texts_are_only_shown(store: Engine, tmp_path: Path, opening: Opening) -> None:
    """Names, persons, reasons and prefixes reach the page as text, and a file of rules hides no letter."""
    bad, worse = HOSTILE[:2]
    give_rules(store, rule(bad, name="studio", prefixes=("Ch\u200be",), readers=(worse,)))
    refuse(store, RefusedName(worse, bad, worse, 1.0))
    hostile = GameProposal(game_key(worse), worse, bad, worse, readers=(bad,))
    write_proposal(store, hostile)
    app = opening("games", name=hostile.game_key)
    (file,) = [each.value for each in app.code if "prefixes" in each.value]
    assert r"Ch\u200Be" in file
    assert not any(part in drawn_alive(app) for part in ("<script", "**bold", "](", ":red[", "javascript:"))
    assert "gone" in warned(opening("games", name="gone"))


def test_a_first_schema_is_registered_on_schemas(store: Engine, opening: Opening) -> None:
    """The name goes along into the form; Schemas itself links to the names."""
    arrive(store, "Chess Deluxe")
    app = opening("games", name=DELUXE)
    app.button(key=f"game_schema_{DELUXE}").click().run()
    assert app.text_input(key="register_game_new").value == "Chess Deluxe"
    assert "Names without a game, and proposed games" in links(opening("schemas"))


# ------------------------------------------------------------------------------------------- proposals, rules, the past


def test_a_proposal_is_shown_then_written(store: Engine, opening: Opening) -> None:
    """The form's proposal is checked with its schema before anything is written, and needs a reason."""
    assert "Review names" not in [each.label for each in opening("fleet").button]
    app = opening("games")
    assert "No name waits for a decision" in texts(app)
    app.text_input(key="propose_game").set_value("New")
    app.number_input(key="propose_load").set_value(200.0)
    app.file_uploader(key="propose_file").upload("m.avsc", avro(player="string"))
    app.button(key="preview_propose").click().run()
    assert "A schema and the name of its message belong together" in warned(app)
    app.text_input(key="propose_message").set_value("t.M")
    app.button(key="preview_propose").click().run()
    assert "200 events/s, schema t.M" in texts(app)
    assert read_proposals(store) == {}
    app.button(key="ask_game_proposal").click().run()
    assert "Enter a reason" in warned(app)
    fill(app, reason="next season")
    app.button(key="ask_game_proposal").click().run()
    (written,) = read_proposals(store).values()
    assert (written.proposed_by, written.reason, written.format) == (services.actor(), "next season", "avro")
    assert "1 proposed game waits for a decision: New" in texts(opening("fleet"))


def test_rules_are_planned_then_applied(store: Engine, opening: Opening) -> None:
    """A file replaces the rules as its preview says, in the name of who confirms; a wrong file has its problems."""
    arrive(store, "Chess Deluxe")
    app = opening("games")
    app.file_uploader(key="rules_file").upload("rules.yml", b"version: 2\n")
    app.button(key="preview_rules").click().run()
    assert "write version: 1" in texts(app)
    app.file_uploader(key="rules_file").upload("rules.yml", RULES.encode())
    app.button(key="preview_rules").click().run()
    assert "'Chess Deluxe' (30 rows) becomes a game by studio" in texts(app)
    assert read_rules(store).number == 0
    fill(app, reason="studio A")
    app.button(key="ask_game_rules").click().run()
    assert "✓ 1 rule is in force." in texts(app)
    assert [(each.name, each.changed_by) for each in read_rules(store).rules] == [("studio", services.actor())]
    assert frame(app, "Prefixes") == ["Chess"]
    assert frame(app, "state") == ["['… comes']"]


def test_rules_of_another_person_are_not_overwritten(store: Engine, opening: Opening) -> None:
    """Where others were applied after the preview, nothing is written and the page says so."""
    app = opening("games")
    app.file_uploader(key="rules_file").upload("rules.yml", RULES.encode())
    app.button(key="preview_rules").click().run()
    give_rules(store, rule("Ludo", name="other"))
    fill(app, reason="studio A")
    app.button(key="ask_game_rules").click().run()
    assert "Other rules were applied after you looked" in warned(app)
    assert [each.name for each in read_rules(store).rules] == ["other"]


def test_a_retired_game_is_restored(store: Engine, opening: Opening) -> None:
    """Retired games stand there by key; the way back is the operation that commands submit."""
    with store.begin() as connection:
        retire(connection, {KEY["Go"]: read_assignments(store)[KEY["Go"]].epoch})
    app = opening("games")
    assert frame(app, "key") == [KEY["Go"]]
    app.button(key="preview_games_retired_chosen").click().run()
    assert "Choose a name first" in warned(app)
    app.selectbox(key="games_retired_chosen").set_value(KEY["Go"]).run()
    app.button(key="preview_games_retired_chosen").click().run()
    app.button(key="ask_game_past").click().run()
    assert [(each.kind, each.targets) for each in list_operations(store)] == [("restore", (f"game:{KEY['Go']}",))]


def test_a_broken_count_hides_nothing_else(store: Engine, opening: Opening) -> None:
    """Pages report a count that cannot be read, and show no zero; rules and rejected names stay on screen."""
    refuse(store, RefusedName("spam", "ann", None, 1.0))
    write_sketch(store, "not a sketch")
    forget_readings()
    app = opening("games")
    assert "Names without a game are not known: " in texts(app)
    assert frame(app, "Name") == ["spam"]
    assert "Names without a game are not known: " in texts(opening("fleet"))
