"""Guards how a real session gets the setting `spark.conf`, in a process of its own."""

import ast
import os
import subprocess
import sys
from pathlib import Path

SECRET = r" hunter2 = \u0041\ canary: #!é😀 "
CODE = """
import sys
from pathlib import Path
from pipeline.session import spark_session
from pipeline.settings import load

spark = spark_session(*load(Path(sys.argv[1]), {}), "t", light=True)
java = spark._jvm.java.lang
given = spark.sparkContext._jsc.hadoopConfiguration().get("secret.key")
print(ascii((given, java.System.getProperty("spark.hadoop.secret.key"), java.Runtime.getRuntime().maxMemory())))
"""


def test_a_session_has_what_the_setting_says(tmp_path: Path) -> None:
    """Signs of every kind reach Spark and spark-submit unchanged, memory counts, and no file with secrets is left."""
    rest = tmp_path / "rest"
    rest.mkdir()
    toml = f'[spark]\n[spark.conf]\n"spark.driver.memory" = "600m"\n"spark.hadoop.secret.key" = \'{SECRET}\'\n'
    (tmp_path / "turnout.toml").write_text(toml, "utf-8")
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    environ = {**os.environ, "TMPDIR": str(rest)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    given, by_file, heap_bytes = ast.literal_eval(done.stdout.splitlines()[-1])
    assert given == SECRET
    assert by_file == SECRET.strip(), "spark-submit takes off the spaces around a value"
    assert 500 << 20 < heap_bytes <= 600 << 20
    assert not list(rest.glob("turnout-*"))
