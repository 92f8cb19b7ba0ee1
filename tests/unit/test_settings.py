from pathlib import Path

import pytest

from pipeline.errors import Refused
from pipeline.settings import Settings, load


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
    )
    with pytest.raises(Refused) as refused:
        load(tmp_path, {"TURNOUT_DASHBOARD__PORT": "high"})
    text = str(refused.value)
    for part in (
        "6 wrong setting(s)",
        "environment: expected a text, got '5'",
        "nonsense: no such setting",
        "source.kind: expected one of delta, kafka, got 'files'",
        "ingest.bronze_files: expected a whole number, got 'many'",
        "demux.x: no such setting",
        "dashboard.port: expected a whole number, got 'high'",
    ):
        assert part in text


def test_values_out_of_range_are_refused(tmp_path: Path) -> None:
    """A setting of the right type can still be impossible."""
    with pytest.raises(Refused, match=r"ingest.trigger_seconds: expected a value from 0.1 to 3600, got 0"):
        load(tmp_path, {"TURNOUT_INGEST__TRIGGER_SECONDS": "0"})


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    """The message says which file to correct, and where."""
    (tmp_path / "turnout.toml").write_text("[ingest\n")
    with pytest.raises(Refused, match=r"turnout.toml is not valid TOML.*line 1"):
        load(tmp_path, {})
