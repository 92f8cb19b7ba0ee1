"""Acting as another person: what a running demo offers to its user, and nobody and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from app.person import act_as, identity
from app.state import services
from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.demo.breaking.channel import offered
from pipeline.settings.tree import Paths
from pipeline.store.operations import list_operations
from tests.pages.demo_world import Fake
from tests.unit.app.app_world import Opening, again, choose, fill, four_games, name_roles, pages_of, sign_in, texts

ADA, BEN = "ada@demo", "ben@demo"


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened, four_games(tmp_path):
        yield opened


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


def switches(app: AppTest) -> list[str]:
    return [str(each.key) for each in app.radio if each.key == "act_as_person"]


def looked_again(app: AppTest) -> AppTest:
    st.cache_data.clear()
    return again(app)


def moved_by(app: AppTest, paths: Paths) -> list[str]:
    """Submit a move, and return who asked for all there are."""
    choose(app, ["Chess"], "b").run()
    app.button(key="preview_move").click().run()
    fill(app, "to try it").button(key="ask_groups_move").click().run()
    assert not app.exception
    return [each.actor for each in list_operations(services.engine(services.open_environment()))]


def test_the_user_of_a_demo_acts_as_the_person_they_chose(opening: Opening, paths: Paths) -> None:
    """The page says who one is, the operation is that person's, and on the next page one is still that person."""
    with offered(paths, Fake(), (ADA, BEN)):
        app = opening("groups")
        offers = [each.replace("\\", "").replace(":small[]", "") for each in app.radio(key="act_as_person").options]
        assert offers == [f"{current_user()} (who started the demo)", f"{ADA} (admin)", f"{BEN} (admin)"]
        app.radio(key="act_as_person").set_value(ADA).run()
        assert moved_by(app, paths) == [ADA]
        app = again(app.switch_page("views/operations.py"))
        assert app.radio(key="act_as_person").value == ADA


def test_without_a_demo_nobody_is_offered_and_nothing_done(opening: Opening, paths: Paths) -> None:
    """A state that a browser forged, or that a demo left behind, is dropped; an act that comes first is refused."""
    paths.break_it.write_text('{"socket": "/tmp/none", "secret": "by hand"}')
    paths.break_it.chmod(0o600)
    app = opening("groups")
    assert switches(app) == []
    app.session_state["demo_person"] = ADA
    assert moved_by(app, paths) == [current_user()]
    with offered(paths, Fake(), (ADA, BEN)):
        app = looked_again(app)
        app.radio(key="act_as_person").set_value(BEN).run()
        choose(app, ["Go"], "b").run()
        app.button(key="preview_move").click().run()
    fill(app, "too late").button(key="ask_groups_move").click().run()
    assert "does not offer" in "".join(each.value for each in app.warning).replace("\\", "")
    assert switches(looked_again(app)) == []
    assert len(list_operations(services.engine(services.open_environment()))) == 1


@pytest.mark.parametrize("why", ["platform", "roles", "store", "name"])
def test_nobody_gets_rights_by_it(why: str, opening: Opening, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo gives it neither to people of a platform, nor where roles or a shared store are set, nor other names."""
    with offered(paths, Fake(), (ADA, BEN)):
        environment = services.open_environment()
        assert services.offered_people(environment) == (ADA, BEN)
        if why == "platform":
            sign_in(monkeypatch, "ann@example.com", by_platform=True)
        elif why == "roles":
            name_roles(paths.root, movers=[ADA])
            environment = services.open_environment()
        elif why == "store":
            shared = environment.settings.store.__class__(url="postgresql://shared/turnout")
            environment = services.Environment(
                environment.settings.__class__(store=shared), environment.paths, environment.store
            )
        monkeypatch.setattr(act_as, "chosen", lambda: "boss@example.com" if why == "name" else ADA)
        if why != "name":
            assert services.offered_people(environment) == ()
        me = identity.person()
        with pytest.raises(Refused, match="does not offer"):
            act_as.acting_person(me, environment.settings, environment.paths, services.roles(environment))
        assert "does not offer" in str(services.missing_role(environment, None))
        if why in {"platform", "roles"}:
            assert switches(opening("fleet")) == []


def test_the_page_of_no_other_environment_says_it(opening: Opening) -> None:
    """Without a demo the frame says who is signed in, as ever."""
    assert f"local · {current_user()}" in texts(opening("fleet"))
