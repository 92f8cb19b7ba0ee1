"""The page Break it: there where a demo of this machine offers faults, and nowhere else."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import formatting
from app.state import breaking, services
from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.demo.breaking.channel import offered
from pipeline.demo.breaking.faults import FAULTS
from pipeline.settings.tree import Paths
from tests.checkout import ROOT
from tests.pages.demo_world import Fake
from tests.unit.app.app_world import KEY, again, four_games, links, name_roles, pages_of, sign_in, texts


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    with pages_of(tmp_path, monkeypatch), four_games(tmp_path):
        yield Paths(tmp_path)


def titles(app: AppTest) -> set[str]:
    return {str(page["page_name"]) for page in app._registered_pages.values()}


def opened() -> AppTest:
    """Open the page as a browser does: the app finds its pages anew."""
    app = AppTest.from_file(ROOT / "app" / "main.py", default_timeout=30).run()
    assert "break_it" in " ".join(titles(app)).lower().replace(" ", "_")
    return again(app.switch_page("views/break_it.py"))


def buttons(app: AppTest) -> set[str]:
    return {str(each.key) for each in app.button}


def test_without_a_demo_there_is_no_page_and_no_act(fleet: Paths) -> None:
    """A production environment has neither the page nor, where somebody asks all the same, the act."""
    app = AppTest.from_file(ROOT / "app" / "main.py", default_timeout=30).run()
    assert not any("break" in each.lower() for each in titles(app))
    fleet.break_it.write_text('{"socket": "/tmp/none", "secret": "by hand"}')
    fleet.break_it.chmod(0o600)
    assert not breaking.is_offered()
    fake = Fake()
    with offered(fleet, fake):
        app = opened()
    app.button(key="break_kill").click()
    again(app)
    assert fake.done == []
    assert not buttons(app) & {f"break_{name}" for name in FAULTS}
    for act in (breaking.begin, breaking.undo):
        with pytest.raises(Refused, match="No demo of yours runs"):
            act(services.open_environment(), "freeze", "a")
    assert fake.done == []


def test_people_of_a_platform_break_nothing(fleet: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a demo runs beside it, a Databricks App has no such page."""
    with offered(fleet, Fake()):
        assert breaking.is_offered()
        sign_in(monkeypatch, "ann@example.com", by_platform=True)
        assert not breaking.is_offered()


def test_a_fault_is_done_and_ended_by_buttons(fleet: Paths) -> None:
    """Each fault has a button that gives the chosen target by its key; a second button ends a lasting fault."""
    fake = Fake()
    with offered(fleet, fake):
        app = opened()
        assert {f"break_{name}" for name in FAULTS} <= buttons(app)
        signs = [sign for fault in FAULTS.values() for sign in fault.signs]
        said = [formatting.escaped(f"{each.where}, within {each.seconds} s: {each.what}") for each in signs]
        assert set(said) <= set(links(app))
        app.selectbox(key="target_poison").set_value(KEY["Go"])
        app.button(key="break_poison").click()
        again(app)
        assert "did poison" in app.info[0].value
        assert "1 fault lasts" in texts(app)
        app.button(key=f"undo_poison_{KEY['Go']}").click()
        again(app)
        app.button(key="break_silence").click()
        again(app)
    assert fake.done == [f"poison {KEY['Go']}", f"undo poison {KEY['Go']}", "silence "]


def test_a_fault_needs_the_role(fleet: Paths) -> None:
    """A person without the role sees the reason; the demo gets no request."""
    fake = Fake()
    with ExitStack() as stack:
        stack.enter_context(offered(fleet, fake))
        app = opened()
        assert not app.button(key="break_kill").disabled
        name_roles(fleet.root, operators=["nobody@example.com"])
        app.button(key="break_kill").click()
        again(app)
        assert app.button(key="break_kill").disabled
        assert any(current_user() in each.value for each in app.warning)
    assert fake.done == []
