import os
import stat
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

from pipeline.platforms.session.spark import properties, spark_session
from pipeline.settings.tree import load


class Stopped(Exception):
    pass


@pytest.mark.proves("G283")
def test_the_settings_conf_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user reads command lines, so `spark.conf` goes by a file of mode 0600, in memory: a kill leaves none."""
    seen: list[tuple[list[str], dict[str, str], str, int, Path]] = []
    left: list[Path] = []
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(disk))

    def popen(command: list[str], *_: Any, env: dict[str, str], **__: Any) -> None:
        file = Path(command[command.index("--properties-file") + 1])
        seen.append((command, env, file.read_text("ascii"), stat.S_IMODE(file.stat().st_mode), file))
        left.extend(each for each in tmp_path.rglob("*") if each.is_file() and b"secret" in each.read_bytes())
        raise Stopped

    monkeypatch.setattr("pipeline.platforms.session.spark.spark_jars", list)
    monkeypatch.setattr(java_gateway, "Popen", popen)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("pyspark.SparkContext._jvm", None)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    (tmp_path / "turnout.toml").write_text(
        '[spark]\ndriver_memory = "700m"\n[spark.conf]\n"spark.hadoop.secret.key" = "canary-key"\n'
        '"spark.ui.enabled" = "true"\n'
    )
    with pytest.raises(Stopped):
        spark_session(*load(tmp_path, {}), "t")
    ((command, env, text, mode, file),) = seen
    assert "canary" not in " ".join(command)
    assert "canary" not in " ".join(env.values())
    assert "spark.driver.memory=700m" in command
    assert not [word for word in command if word.startswith("spark.ui.enabled")], "the command line counts more"
    assert properties({"spark.hadoop.secret.key": "canary-key", "spark.ui.enabled": "true"}) == text
    assert mode == 0o600
    assert left == [tmp_path / "turnout.toml"]
    assert not file.exists()
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ
