import dataclasses
import json
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import Refused
from pipeline.setting_values import may_be_secret
from pipeline.settings import Settings, load
from pipeline.store.engine import open_store

CANARY = "hunter2-canary"


def test_without_a_file_everything_has_a_default(tmp_path: Path) -> None:
    """A newcomer needs no settings at all."""
    settings, paths = load(tmp_path, {})
    assert Settings() == settings
    assert tmp_path / "bronze" == paths.bronze


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    """A variable wins over the file, and text becomes the type of the setting."""
    (tmp_path / "turnout.toml").write_text('[ingest]\ntrigger_seconds = 9\n[spark.conf]\n"spark.x" = 3\n')
    settings, _ = load(tmp_path, {"TURNOUT_INGEST__TRIGGER_SECONDS": "1.5", "TURNOUT_HOME": "/x", "OTHER": "y"})
    assert settings.ingest.trigger_seconds == 1.5
    assert dict(settings.spark.conf) == {"spark.x": "3"}


def test_all_wrong_settings_are_told_at_once(tmp_path: Path) -> None:
    """Nobody corrects settings one by one: every problem is in one message, with what was expected."""
    (tmp_path / "turnout.toml").write_text(
        'environment = 5\nnonsense = 1\n[source]\nkind = "files"\n[ingest]\nbronze_files = "many"\n[demux]\nx = 1\n'
        "[maintenance]\nlog_megabytes = 1.5\n"
    )
    with pytest.raises(Refused) as refused:
        load(tmp_path, {"TURNOUT_DASHBOARD__PORT": "high"})
    text = str(refused.value)
    for part in (
        "7 wrong setting(s)",
        "environment: expected a text, got '5'",
        "nonsense: no such setting",
        "source.kind: expected one of delta, kafka, got 'files'",
        "ingest.bronze_files: expected a whole number, got 'many'",
        "demux.x: no such setting",
        "maintenance.log_megabytes: expected a whole number, got '1.5'",
        "dashboard.port: expected a whole number, got 'high'",
    ):
        assert part in text


def test_values_out_of_range_are_refused(tmp_path: Path) -> None:
    """A setting of the right type can still be impossible."""
    with pytest.raises(Refused, match=r"ingest.trigger_seconds: expected a value from 0.1 to 3600, got 0"):
        load(tmp_path, {"TURNOUT_INGEST__TRIGGER_SECONDS": "0"})


@pytest.mark.parametrize("topic", ["a,b", "a, b", "games-.*", "", ".", "..", "x" * 250])
def test_a_source_is_one_topic(tmp_path: Path, topic: str) -> None:
    """Law L1: Spark would read all topics of a list, but positions are kept for one: the setting is refused."""
    environ = {"TURNOUT_SOURCE__KIND": "kafka", "TURNOUT_SOURCE__TOPIC": topic}
    with pytest.raises(Refused, match=r"source\.topic: expected the name of one topic.*not a list or a pattern"):
        load(tmp_path, environ)


def test_transactions_are_read_when_they_are_committed(tmp_path: Path) -> None:
    """Law L1: what a producer took back is no event, unless the settings ask for it."""
    file = tmp_path / "turnout.toml"
    file.write_text('[source]\nkind = "kafka"\n')
    assert load(tmp_path, {})[0].source.isolation_level == "read_committed"
    for name in ("isolation.level", "kafka.isolation.level"):
        file.write_text(f'[source]\nkind = "kafka"\nkafka_options = {{ "{name}" = "read_uncommitted" }}\n')
        assert load(tmp_path, {})[0].source.isolation_level == "read_uncommitted"
        file.write_text(f'[source]\nkind = "kafka"\nkafka_options = {{ "{name}" = "serializable" }}\n')
        with pytest.raises(Refused, match=r"isolation\.level to be read_committed or read_uncommitted, got 'serial"):
            load(tmp_path, {})


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    """The message says which file to correct, and where."""
    (tmp_path / "turnout.toml").write_text("[ingest\n")
    with pytest.raises(Refused, match=r"turnout.toml is not valid TOML.*line 1"):
        load(tmp_path, {})


def leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield section and name of every setting."""
    for name, kind in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield prefix.rstrip("."), name


@pytest.mark.parametrize("value", [CANARY, [CANARY], {"inner": {"deep": CANARY}}], ids=["text", "list", "table"])
@pytest.mark.parametrize(("section", "name"), list(leaves(Settings)))
def test_no_secret_is_in_a_refusal(section: str, name: str, value: object, tmp_path: Path) -> None:
    """A password in the wrong place must not reach a terminal or a log; a plain word in a plain setting may."""
    written = json.dumps(value) if not isinstance(value, dict) else '{ inner = { deep = "hunter2-canary" } }'
    (tmp_path / "turnout.toml").write_text(f"{f'[{section}]' if section else ''}\n{name} = {written}\n")
    try:
        load(tmp_path, {})
    except Refused as refused:
        shown = CANARY in str(refused)
        assert not shown or (value == CANARY and not may_be_secret(name, value))


@pytest.mark.parametrize(
    "text",
    [
        f"[store]\nurl = {CANARY}\n",
        f'[store]\nurl = "{CANARY}\n',
        f'[store]\nurl = "a"{CANARY}\n',
        f'store = "{CANARY}"\n',
        f'[source]\nkafka_options = ["{CANARY}"]\n',
        f'[source]\nkafka_options = {{ "sasl.jaas.config" = [ "{CANARY}" ] }}\n',
    ],
)
def test_no_line_of_the_file_is_in_a_refusal(text: str, tmp_path: Path) -> None:
    """Whoever mistypes a line with a password sees where it is, not what it is."""
    (tmp_path / "turnout.toml").write_text(text)
    with pytest.raises(Refused) as refused:
        load(tmp_path, {})
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("url", [f"postgresql+psycopg://u:{CANARY}@host:port/db", f"postgresql//u:{CANARY}@host"])
def test_a_store_url_that_is_none_is_one_sentence_without_its_password(url: str, tmp_path: Path) -> None:
    """A bad port is a wrong setting, not a traceback."""
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": url})
    with pytest.raises(Refused, match=r"store\.url") as refused:
        open_store(settings, paths)
    assert CANARY not in str(refused.value)
