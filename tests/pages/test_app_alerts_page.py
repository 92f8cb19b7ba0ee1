"""The pages Alerts and Runbook: what fires since when, who silenced it, and commands with an incident's names."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from app.components import links
from app.state import alerts as asking
from app.state import services
from pipeline.api.alerts import Alerts, AlertSilence, AlertState, ReportedAlert
from pipeline.base.errors import Refused
from tests.browser.seed import HOSTILE
from tests.unit.app.app_world import KEY, Opening, drawn_alive, texts
from tests.unit.app.app_world import links as links_of

Report = Callable[[Alerts], None]
NOW = time.time()
WHY = "Alertmanager does not answer: Connection refused."


def alert(name: str, state: AlertState = "firing", *, minutes: float = 12.0, **labels: str) -> ReportedAlert:
    severity = "page" if name in {"TurnoutStreamDown", "TurnoutGroupDown"} else "ticket"
    game = labels.get("game", "")
    return ReportedAlert(
        name, severity, state, f"{name} of {game}", "", NOW - 60 * minutes, {"alertname": name, **labels}
    )


def known(firing: Sequence[ReportedAlert], **more: Any) -> Alerts:
    return Alerts(tuple(firing), None, NOW, "Alertmanager", **{"pending": (), "silenced": (), "explained": (), **more})


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    """Let the servers answer something, in place of their last answer."""
    monkeypatch.setenv("TURNOUT_ALERTS__ALERTMANAGER_URL", "http://127.0.0.1:1")

    def answer(found: Alerts) -> None:
        monkeypatch.setattr(asking, "alerts", lambda _: found)

    return answer


def test_the_page_lists_alerts_by_state_with_since_affected_and_runbook(
    store: Engine, opening: Opening, report: Report
) -> None:
    """Alike ones share a line, the table has each; a name stands for a key, and each state has its words."""
    late = [alert("TurnoutLatencyOverObjective", game=KEY[name], minutes=30) for name in ("Chess", "Go")]
    silence = AlertSilence("ann", NOW + 3600, "upgrade of b")
    report(
        known(
            [alert("TurnoutStreamDown", game=KEY["Chess"]), *late],
            pending=(replace(alert("TurnoutGroupDown", "pending", cluster_group="b"), description="For 15 minutes."),),
            silenced=(replace(alert("TurnoutSourceUnknown", "silenced"), silence=silence),),
            explained=(alert("TurnoutFreshnessBurnSlow", "explained", game=KEY["Go"]),),
        )
    )
    app = opening("alerts")
    said = texts(app)
    assert "3 alerts fire" in said
    assert "1 pending · 1 silenced · 1 explained · as Alertmanager says" in said
    assert "TurnoutStreamDown of Chess" in said
    assert "holds, but not for long enough yet" in said
    assert "For 15 minutes." not in said, "which a rule says of an alert that fires"
    assert "2: Chess, Go" in said
    assert said.count("12 min") >= 1
    table = app.dataframe[0].value
    assert list(table["what"]) == ["Chess", "Chess", "Go", "group b", "the fleet", "Go"]
    assert [each[0] for each in table["state"]] == [
        "▲ firing", "▲ firing", "▲ firing", "… pending", "‖ silenced", "→ explained",
    ]  # fmt: skip
    assert table["silence"][4].startswith("by ann until ")
    assert table["silence"][4].endswith(": upgrade of b")
    assert "silenced by ann until " in said
    assert links_of(app).count("Runbook") == 5
    assert "3 alerts" in links_of(app), "the number in the header leads here"


def test_numbers_of_an_alert_have_the_time_that_they_are_of(store: Engine, opening: Opening, report: Report) -> None:
    """A text of a minute ago is never shown as what is true now."""
    told = replace(alert("TurnoutFleetUnhealthy"), description="6 in all.", updated_at=1_795_617_600.0)
    report(known([told]))
    assert "as of 14:40:00 UTC: 6 in all." in texts(opening("alerts"))
    report(known([replace(told, updated_at=None)]))
    assert "when last evaluated: 6 in all." in texts(opening("alerts"))


def test_a_server_that_is_away_is_reported_with_since_and_what_fired_then(
    store: Engine, opening: Opening, report: Report
) -> None:
    """Unknown is never none and never a dash alone: page, header and Fleet say since when and what was last."""
    last = known([alert("TurnoutStreamDown", game=KEY["Chess"])])
    away = Alerts(None, WHY, NOW, "Alertmanager", why_no_pending=WHY, away_since=NOW - 300, last=last)
    report(away)
    app = opening("alerts")
    said = texts(app)
    assert "Nobody knows which alerts fire" in said
    assert "5 min" in said
    assert "Connection refused" in said
    assert "Fired at " in said
    assert "TurnoutStreamDown of Chess" in said
    assert "alerts unknown" in links_of(app)
    assert asking.briefly_unknown(away, NOW).endswith(", 1 fired then")
    report(replace(away, last=None))
    assert "Fired at" not in texts(opening("alerts"))
    assert asking.briefly_unknown(replace(away, last=None), NOW).startswith("Alertmanager away since ")


def test_the_fleet_says_since_when_alerts_are_unknown(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figure of alerts has no number, and says since when and how many fired then."""
    last = known([alert("TurnoutStreamDown")])
    away = Alerts(None, WHY, NOW, "Alertmanager", away_since=NOW - 300, last=last)
    monkeypatch.setattr("app.fleet.gathering.reported_alerts", lambda _: away)
    assert ", 1 fired then" in texts(opening("fleet"))


def test_without_a_server_the_page_says_how_to_name_one(store: Engine, opening: Opening) -> None:
    """An environment without Prometheus has no alerts to show, which is not the same as none."""
    app = opening("alerts")
    assert "No server of alerts is configured" in texts(app)
    assert "alerts.alertmanager_url" in app.info[0].value
    assert "no alerts" not in links_of(app)


def test_hostile_labels_reach_the_page_as_text(store: Engine, opening: Opening, report: Report) -> None:
    """A writer to Alertmanager gets no markup, no link and no command into the pages."""
    names = [alert(HOSTILE[0], game=HOSTILE[1], cluster_group=HOSTILE[2], edge=HOSTILE[0])]
    down = alert("TurnoutGroupDown", cluster_group="a; touch /tmp/pwned")
    report(known([*names, down], silenced=(alert("TurnoutEdgeDown", "silenced", edge=HOSTILE[1]),)))
    for app in (
        opening("alerts"),
        opening("runbook", name="turnoutgroupdown"),
        opening("runbook", name="turnoutedgedown"),
    ):
        drawn = drawn_alive(app)
        assert not any(part in drawn for part in ("<script", "**bold", "](", ":red[", "javascript:"))
        assert not [each for each in codes(app) if "pwned" in each]
        texts(app)  # which looks for tags


# ------------------------------------------------------------------------------------------------------------- runbooks


def codes(app: AppTest) -> list[str]:
    """Return the commands that a person can copy."""
    return [each.value for each in app.code]


def test_a_runbook_has_the_names_of_its_incident(store: Engine, opening: Opening, tmp_path: Path) -> None:
    """No word for a name is left in a command: the environment, the game's key and its group stand there."""
    app = opening("runbook", name="turnoutstreamdown", game=KEY["Risk"])
    commands = codes(app)
    assert f"turnout repair retry {KEY['Risk']} --env-dir {tmp_path}" in commands
    assert f"turnout groups run b --env-dir {tmp_path}" in commands
    assert f"turnout schemas register --game Risk --message MESSAGE FILE --env-dir {tmp_path}" in commands
    assert not [each for each in commands if {"NAME", "DIR", "GAME", "GROUP", "KEY"} & {*each.split()}]
    assert "Replace MESSAGE, FILE." in texts(app)


def test_a_command_of_a_runbook_has_the_page_that_does_it(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A button beside a command opens the page with the same choice; nothing is done before it is confirmed there."""
    went: list[tuple[str, Any]] = []
    monkeypatch.setattr(links, "open_page", lambda page, query: went.append((page, dict(query))))
    app = opening("runbook", name="turnoutstreamdown", game=KEY["Risk"])
    labels = [each.label for each in app.button]
    for label in ("Retry…", "Rebuild…", "Open game"):
        app.button[labels.index(label)].click().run()
    risk = KEY["Risk"]
    assert went == [
        ("repairs", {"repair": "retry", "games": risk}),
        ("repairs", {"repair": "rebuild", "games": risk}),
        ("game", {"game": risk}),
    ]
    opening("runbook", name="turnoutgroupdown", group="b")
    drained = opening("runbook", name="turnoutgroupdown", group="b")
    drained.button[[each.label for each in drained.button].index("Drain group…")].click().run()
    assert went[-1] == ("groups", {"steer": "b", "do": "drain"})


def test_without_an_incident_a_runbook_asks_what_it_is_about(store: Engine, opening: Opening) -> None:
    """A command is not offered before its names are known; a choice fills it, and the page reports an unknown name."""
    app = opening("runbook", name="turnoutgroupdown")
    assert not [each for each in codes(app) if "groups run" in each]
    assert "Choose GROUP above for this command." in texts(app)
    app.selectbox(key="subject_group").set_value("b").run()
    assert [each for each in codes(app) if "turnout groups run b " in each]
    lost = opening("runbook", name="turnoutstreamdown", game="nothing_aaaaaaaaaaaa")
    assert "nothing_aaaaaaaaaaaa, which is not here" in texts(lost)
    assert not [each for each in codes(lost) if "nothing_aaaaaaaaaaaa" in each]


def test_an_alert_that_fires_fills_its_runbook(store: Engine, opening: Opening, report: Report) -> None:
    """Opened without a subject, as from a message, it is about what the alert names, and says since when it fires."""
    report(known([alert("TurnoutStreamDown", game=KEY["Go"]), alert("TurnoutStreamDown", game=KEY["Chess"])]))
    app = opening("runbook", name="turnoutstreamdown")
    assert "fires since " in texts(app)
    assert [each for each in codes(app) if f"repair retry {KEY['Go']} " in each]
    assert list(app.selectbox(key="subject_game").options) == [f"Go · {KEY['Go']}", f"Chess · {KEY['Chess']}"]


def test_a_runbook_is_read_without_the_control_store(
    store: Engine, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some runbooks are about a store that does not answer: the page shows them all the same."""

    def away(*_: object) -> None:
        raise Refused("The control store does not answer.")

    monkeypatch.setattr(services, "fleet", away)
    assert "turnout groups run b " in "\n".join(codes(opening("runbook", name="turnoutgroupdown", group="b")))
    monkeypatch.setattr(services, "open_environment", away)
    app = opening("runbook", name="turnoutgroupdown")
    assert "has no names filled in" in app.warning[0].value
    assert "Mitigation" in texts(app)


def test_a_name_without_a_runbook_leads_to_all_of_them(store: Engine, opening: Opening) -> None:
    """A link of an older or a newer version ends at the list."""
    app = opening("runbook", name="../walk")
    assert "there is none of the name ../walk" in texts(app)
    assert "TurnoutStreamDown" in links_of(app)
