"""Guards how a real session gets the setting `spark.conf`."""

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
