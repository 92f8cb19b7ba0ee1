"""Guards how a real session gets the setting `spark.conf`."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import HEAP_MB, SECRET


def test_a_session_has_what_the_setting_says(spark: SparkSession) -> None:
    """Signs of every kind reach Spark and spark-submit unchanged, and memory counts."""
    assert spark._jsc is not None
    assert spark._jsc.sc().hadoopConfiguration().get("secret.key") == SECRET
    assert spark._jvm is not None
    java = spark._jvm.java.lang
    by_file = java.System.getProperty("spark.hadoop.secret.key")
    assert by_file == SECRET.strip(), "spark-submit takes off the spaces around a value"
    assert 1 << 30 < java.Runtime.getRuntime().maxMemory() <= HEAP_MB << 20, "the default is 1 GB"


def test_a_session_works_in_the_environments_folder(spark: SparkSession) -> None:
    """A program that cleans /tmp takes nothing that a running driver needs: blocks, spills, broadcasts."""
    assert spark._jvm is not None
    blocks = spark._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    folders = [Path(each) for each in blocks.localDirsString()]
    warehouse = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    assert folders != []
    assert {each.parent.parent for each in folders} == {warehouse.parent / "spark"}
    assert Path(spark.sparkContext._temp_dir).is_relative_to(warehouse.parent / "spark")
