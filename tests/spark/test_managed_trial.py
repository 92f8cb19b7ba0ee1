"""The trial of a managed table, on Spark's own: what a workspace answers, nobody has seen."""

import pytest
from pyspark.sql import SparkSession

from pipeline.base.errors import Refused
from pipeline.lake.delta.opening import open_table
from pipeline.platforms.local.managed_trial import try_managed


def test_a_managed_table_is_tried_and_dropped(spark: SparkSession) -> None:
    """The trial asks its four questions, a repeated append lands once, and no table stays."""
    before = spark.sql("SHOW TABLES").count()
    found = list(try_managed(spark, "default", open_table))
    assert [each.is_good for each in found] == [True, None, True, None], found
    assert found[2].answer == "1 row(s)"
    assert spark.sql("SHOW TABLES").count() == before


def test_a_schema_that_cannot_be_used_is_an_answer(spark: SparkSession) -> None:
    """A schema that is not there is an answer that failed; a name that is SQL is refused."""
    (only,) = try_managed(spark, "there_is_none", open_table)
    assert only.is_good is False
    with pytest.raises(Refused, match="names no schema"):
        list(try_managed(spark, "default`; DROP", open_table))
