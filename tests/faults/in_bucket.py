"""One life of faults with its tables in a bucket: `python -m tests.faults.in_bucket FOLDER FAULTS EVENTS`.

A process of its own: a JVM that has begun without the jars of S3 cannot read a bucket any more.
"""

import os
import sys
from pathlib import Path

from pipeline.base.failpoints import ENVIRON
from pipeline.base.terminal import say_json
from pipeline.platforms.session.spark import spark_session
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.faults.faults import Faults
from tests.faults.life import fail_everywhere
from tests.spark.conftest import World
from tests.storage.served import served


def main(folder: str, faults: str, events: str) -> None:
    """Live, and print how many faults went off at each point."""
    home = Path(folder)
    with served(home / "objects") as url:
        os.environ |= {"TURNOUT_STORAGE__ROOT": url, ENVIRON: str(home / "failpoints")}
        armed = Faults(home / "failpoints")
        settings, paths = load(home / "env")
        engine = open_store(settings, paths)
        spark = spark_session(settings, paths, "in-bucket", light=True)
        try:
            fired = fail_everywhere(World(spark, settings, paths, engine), armed, int(faults), int(events))
        finally:
            spark.stop()
            engine.dispose()
    say_json(fired)


if __name__ == "__main__":
    main(*sys.argv[1:])
