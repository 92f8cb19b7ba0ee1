"""Where the links of alerts lead: from Prometheus, Alertmanager and what these send, so they are absolute."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from app import server
from app.runbooks import subjects
from pipeline.base.errors import Refused
from pipeline.health.alerting import alerts, files, links
from pipeline.settings.tree import Dashboard, Settings, load
from tests.checkout import ROOT

PAGES = {f"/{path.stem}" for path in (ROOT / "app" / "views").glob("*.py")}


def annotations(settings: Settings) -> list[tuple[str, dict[str, str]]]:
    """Return what each rule of an environment tells people."""
    (*_records, group) = yaml.safe_load(files.render_rules(settings))["groups"]
    return [(rule["alert"], rule["annotations"]) for rule in group["rules"]]


@pytest.mark.parametrize(
    ("dashboard", "address"),
    [
        (Dashboard(), "http://127.0.0.1:8501"),
        (Dashboard(port=9000), "http://127.0.0.1:9000"),
        (Dashboard(url="https://turnout.example.com/"), "https://turnout.example.com"),
    ],
)
def test_every_link_of_every_alert_is_absolute_and_leads_to_something(dashboard: Dashboard, address: str) -> None:
    """Each rule links its runbook, which the dashboard serves and begins with its name, and a page that there is."""
    runbooks = server._runbooks()
    reported = annotations(Settings(dashboard=dashboard))
    assert [name for name, _ in reported] == [each.name for each in alerts.alerts()]
    for name, texts in reported:
        assert texts["runbook_url"].startswith(f"{address}/runbooks/")
        runbook = urlsplit(texts["runbook_url"])
        assert f"<h1>{name}</h1>" in runbooks[runbook.path.removeprefix("/runbooks/")]
        assert set(parse_qs(runbook.query)) <= set(subjects.PARAMS), "the page of runbooks knows each of them"
        assert texts["dashboard_url"].startswith(f"{address}/")
        assert urlsplit(texts["dashboard_url"]).path in {"/", *PAGES}


def test_the_rules_of_an_environment_have_its_dashboards_address(tmp_path: Path) -> None:
    """The files that a command writes have the settings of the environment that it is given."""
    (tmp_path / "turnout.toml").write_text('[dashboard]\nurl = "https://turnout.example.com"\n')
    rules, *_ = files.write(*load(tmp_path, {}))
    assert 'runbook_url: "https://turnout.example.com/runbooks/turnoutstreamdown?game=' in rules.read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("TurnoutGroupDown", "?group={{ $labels.cluster_group }}"),
        ("TurnoutDerivedStopped", "?game={{ $labels.game }}&derived={{ $labels.derived }}"),
        ("TurnoutMaintenanceOverdue", ""),
    ],
)
def test_the_link_to_a_runbook_says_what_the_alert_is_about(name: str, about: str) -> None:
    """A person who follows the link from a message reads commands with the group, game or stream of this alert."""
    (alert,) = (each for each in alerts.alerts() if each.name == name)
    assert links.runbook_url(alert, "") == f"/runbooks/{name.lower()}{about}"


def test_each_runbook_names_the_page_that_shows_the_problem() -> None:
    """The runbook leads to the same page, with the same choice, as the alert's own link."""
    shown = {"game": "KEY", "cluster_group": "GROUP"}
    for alert in alerts.alerts():
        page = re.sub(r"{{ \$labels\.(\w+) }}", lambda each: shown[each[1]], alert.dashboard)
        text = (ROOT / f"docs{alert.runbook}.md").read_text("utf-8")
        assert f"\n## Diagnosis\n\nPage of the dashboard: `{page}`.\n" in text, alert.name


@pytest.mark.parametrize(
    "url", ["dash.example.com", "//host", "javascript:alert(1)", "https://ann:pw@host", "http://host/{{ .Labels }}"]
)
def test_an_address_that_is_no_address_is_refused(tmp_path: Path, url: str) -> None:
    """A text for links that lead nowhere, or a template of Prometheus, is refused unseen: it may have a password."""
    (tmp_path / "turnout.toml").write_text(f'[dashboard]\nurl = "{url}"\n')
    with pytest.raises(Refused, match=r"dashboard\.url: expected an address") as refused:
        load(tmp_path, {})
    assert url not in str(refused.value)
