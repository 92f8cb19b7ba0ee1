"""Fixtures of the proof by crashes: those of the Spark tests."""

from tests.spark.conftest import failpoints, faults, spark, world  # noqa: F401 - fixtures
