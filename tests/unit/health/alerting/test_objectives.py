"""Guards what `objectives.yml` may say, and that the files of Prometheus and Alertmanager follow from it whole."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pipeline.base.errors import Refused
from pipeline.base.names import game_key, key_pattern
from pipeline.cli.main import cli
from pipeline.health.alerting import burn, files
from pipeline.health.alerting.alertmanager import alertmanager_config
from pipeline.health.alerting.objectives import Objective, default, parse, read
from pipeline.settings.tree import Paths, Settings, load

GOOD = """\
classes:
  - name: tournament
    games: [Chess, "studio-a/*"]
    latency_seconds: 20
    share: 0.995
    days: 28
  - name: all
    games: ["*"]
"""


def problems(text: str | bytes) -> list[str]:
    return parse(text.encode() if isinstance(text, str) else text)[1]


def test_a_good_file_is_taken_as_it_is() -> None:
    """Classes keep their order, and what is left out has its default."""
    found, wrong = parse(GOOD.encode())
    assert wrong == []
    names = f"{game_key('Chess')}|studio_a_.*_[a-z2-7]{{12}}"
    assert found == (Objective("tournament", names, 20, 0.995, 28), Objective("all", None, None, 0.99, 30))
    assert default() == (Objective("all", None, None, 0.99, 30),)


@pytest.mark.proves("G220")
def test_all_problems_are_reported_at_once_with_their_lines() -> None:
    """Nobody corrects a file line by line against a command that stops at the first."""
    text = """\
classes:
  - name: Fast!
    games: ["Шах*", ""]
    latency_seconds: -3
    shares: 0.995
  - games: []
    share: nan
  - name: x
    name: y
    games: [a]
    days: 1
  - name: x
    games: ["*"]
    share: 0.9
  - name: late
    games: "*"
"""
    assert [each.partition(":")[0] for each in problems(text)] == [
        f"line {number}" for number in (2, 3, 3, 4, 5, 6, 6, 7, 9, 11, 12, 16)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1: expected a list `classes`, got an empty file"),
        ("classes:\n  - name: [", "line 2: expected YAML: "),
        (b"classes:\n\xff", "line 2: expected UTF-8 text"),
        ("classes: [\x07]", "line 1: expected YAML without control characters"),
        ("[" * 100_000, "line 1: expected no aliases and no deeper lists"),
        ("classes: &a [*a]", "line 1: expected no aliases and no deeper lists"),
        ("- 1", "line 1: expected the file to have classes"),
        ("classes: []", "line 1: classes: expected a list of 1 to 50"),
        ("classes:\n - name: a\n   games: ['*']\n   share: 0.9", "line 4: share: expected at least 0.931 for 30 days"),
        ("classes:\n - name: a\n   games: ['*']\n - name: b\n   games: [x]", "line 4: games: an earlier class has"),
        ("#" * 1_000_001, "line 1: expected at most 1,000,000 bytes"),
    ],
)
def test_a_file_without_objectives_is_refused(text: str | bytes, expected: str) -> None:
    """Whatever is in the file, it is a sentence with a line, and never an error of a library."""
    (only,) = problems(text)
    assert only.startswith(expected)


@pytest.mark.parametrize(
    ("pattern", "name", "belongs"),
    [
        ("Chess", "Chess", True),
        ("Chess", "chess", False),
        ("studio-a/*", "Studio A/Go", True),
        ("studio-a/*", "studio-b", False),
        ("*ess", "Chess", True),
        ("ch*ss", "Chess", True),
        ("*", "Шахматы", True),
        (game_key("Шахматы"), "Шахматы", True),
    ],
)
def test_a_pattern_has_the_games_that_people_expect(pattern: str, name: str, belongs: bool) -> None:
    """Rules know keys only; a name is exact, a pattern fits the readable part."""
    expression = key_pattern(pattern)
    assert expression is not None
    assert (re.fullmatch(expression, game_key(name)) is not None) == belongs


@pytest.mark.proves("G220")
def test_a_broken_file_leaves_the_old_rules(tmp_path: Path) -> None:
    """A mistake on a Friday does not take the alerts away."""
    settings, paths = load(tmp_path, {})
    (tmp_path / "objectives.yml").write_text(GOOD, "utf-8")
    written = files.write(settings, paths)
    before = [file.read_bytes() for file in written]
    (tmp_path / "objectives.yml").write_text("classes:\n  - name: 1 2\n    games: 3\n", "utf-8")
    with pytest.raises(Refused, match=r"2 problem\(s\).*\n  - line 2: .*\n  - line 3: "):
        files.write(settings, paths)
    assert [file.read_bytes() for file in written] == before
    assert {file.stat().st_mode & 0o777 for file in written} == {0o600}


def test_a_file_that_cannot_be_replaced_leaves_the_others(tmp_path: Path) -> None:
    """All three or none: new rules with an old configuration would be a state that nobody chose."""
    settings, paths = load(tmp_path, {})
    rules, prometheus, alertmanager = files.write(settings, paths)
    (tmp_path / "objectives.yml").write_text(GOOD, "utf-8")
    alertmanager.unlink()
    alertmanager.mkdir()
    before = (rules.read_bytes(), prometheus.read_bytes())
    with pytest.raises(Refused, match="cannot be written: Is a directory"):
        files.write(settings, paths)
    assert (rules.read_bytes(), prometheus.read_bytes()) == before
    assert sorted(rules.parent.iterdir()) == sorted([rules, prometheus, alertmanager]), "no draft is left"


def test_the_command_says_what_would_keep_alerts_from_arriving(tmp_path: Path) -> None:
    """A mistyped folder is no new environment, and without its token no webhook gets anything."""
    typo = tmp_path / "typo"
    done = CliRunner().invoke(cli, ["alerts", "write", "--env-dir", str(typo)])
    assert isinstance(done.exception, Refused)
    assert not typo.exists()
    missing = tmp_path / "token"
    (tmp_path / "turnout.toml").write_text(f'[alerts]\ntoken_file = "{missing}"\n')
    done = CliRunner().invoke(cli, ["alerts", "write", "--env-dir", str(tmp_path)])
    assert done.exit_code == 0
    assert f"alerts.token_file: {missing} is not here." in done.output
    missing.write_text("secret")
    assert "token_file" not in CliRunner().invoke(cli, ["alerts", "write", "--env-dir", str(tmp_path)]).output


def test_a_link_to_nothing_is_not_the_default(tmp_path: Path) -> None:
    """Objectives on a volume that is not mounted are unknown, not those that come with turnout."""
    (tmp_path / "objectives.yml").symlink_to(tmp_path / "gone.yml")
    with pytest.raises(Refused, match="cannot be read: No such file"):
        read(tmp_path)


def test_a_file_that_cannot_be_read_is_not_the_default(tmp_path: Path) -> None:
    """Another promise than the written one would be a silent change."""
    (tmp_path / "objectives.yml").mkdir()
    with pytest.raises(Refused, match="cannot be read"):
        read(tmp_path)


def test_factors_are_those_of_the_workbook_and_follow_the_days() -> None:
    """2 % of 30 days in an hour is 14.4 times too fast; a shorter promise allows a slower burn."""
    objective = Objective("all", None, None)
    factors = [objective.factor(*each) for each in ((0.02, 1), (0.05, 6), (0.10, 24), (0.10, 72))]
    assert factors == pytest.approx([14.4, 6, 3, 1])
    fast, slow, drip = burn.burn_alerts([replace(objective, share=0.995, days=28)], 60)
    assert 'ratio1h{class="all"} > 0.0672\nand\n' in fast.expr
    assert 'ratio5m{class="all"} > 0.0672' in fast.expr
    assert 'ratio30m{class="all"} > 0.028' in slow.expr
    assert "> 0.014" in drip.expr
    assert "> 0.00466667" in drip.expr


def test_a_game_belongs_to_one_class_only() -> None:
    """The first class that names a game takes it from all later ones."""
    found, _ = parse((GOOD.replace('"*"', "Go") + "  - name: rest\n    games: ['*']\n").encode())
    matchers = list(burn._matchers(found))
    for earlier, later in pairwise(matchers):
        wanted = earlier.partition(",game!~")[0].removeprefix('game=~"').removesuffix('"')
        assert f"{wanted}" in later.partition("game!~")[2]


def test_two_classes_give_their_own_thresholds() -> None:
    """Each class has a note with its latency, and its own three alerts."""
    found, _ = parse(GOOD.encode())
    short, _long, alerts = yaml.safe_load(files.render_rules(Settings(), found))["groups"]
    notes = {rule["labels"]["class"]: rule["expr"] for rule in short["rules"] if rule["record"].endswith(":bool")}
    for name, seconds in (("tournament", "20"), ("all", "60")):
        assert set(re.findall(r"\) > (\d+)$", notes[name], re.MULTILINE)) - {"120", "300"} == {seconds}
    burns = [(rule["alert"], rule["labels"]["class"]) for rule in alerts["rules"] if "class" in rule["labels"]]
    assert len(burns) == len(set(burns)) == 6


def test_alertmanager_posts_where_the_settings_say_and_reads_the_secret_from_a_file() -> None:
    """Each severity has its own receiver; without an address nobody gets it, and no secret is written down."""
    settings, _ = load(
        Path("/nowhere"),
        {
            "TURNOUT_ALERTS__PAGE_WEBHOOK": "http://127.0.0.1:1/page",
            "TURNOUT_ALERTS__TOKEN_FILE": "/etc/token",
        },
    )
    config = yaml.safe_load(alertmanager_config(settings.alerts))
    routes = {route["matchers"][0]: route["receiver"] for route in config["route"]["routes"]}
    assert routes == {'severity="page"': "page", 'severity="ticket"': "nobody", 'severity="none"': "nobody"}
    (hook,) = config["receivers"][1]["webhook_configs"]
    assert hook["http_config"] == {"authorization": {"credentials_file": "/etc/token"}}
    assert "page_webhook" not in repr(settings.alerts)


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        ("alertmanager_url", "127.0.0.1:9093"),
        ("prometheus_url", "http://user:pw@host"),
        ("prometheus_url", "http://host/?q=1"),
        ("page_webhook", "http://host/a\nb"),
        ("page_webhook", "file:///etc/passwd"),
        ("alertmanager_url", "http://[::1"),
        ("token_file", "token"),
    ],
)
def test_addresses_that_lead_nowhere_are_refused_without_showing_them(tmp_path: Path, leaf: str, value: str) -> None:
    """A webhook's address may be a secret; a wrong one is named by its setting."""
    with pytest.raises(Refused, match=rf"alerts\.{leaf}: expected") as refused:
        load(tmp_path, {f"TURNOUT_ALERTS__{leaf.upper()}": value})
    assert value not in str(refused.value) or leaf == "token_file"


def test_paths_with_quotes_stay_paths(tmp_path: Path) -> None:
    """A folder's name cannot add a line to a configuration."""
    odd = tmp_path / 'a "b\n  c'
    config = files.prometheus_config(odd, odd / "rules.yml", 15, "https://[::1]:9/base/")
    tree = yaml.safe_load(config)
    assert tree["rule_files"] == [str(odd / "rules.yml")]
    (server,) = tree["alerting"]["alertmanagers"]
    assert server == {"scheme": "https", "path_prefix": "/base", "static_configs": [{"targets": ["[::1]:9"]}]}
    assert Paths(tmp_path).targets
