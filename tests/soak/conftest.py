from tests.spark.conftest import world

__all__ = ["world"]
