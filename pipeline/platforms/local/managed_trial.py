"""Tries a managed table of a catalog as the `spark` writer would use it: a question that only a workspace answers.

Called by `turnout try-managed`. Makes one table with a name of its own, and drops it.
"""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pipeline.base.errors import Refused, first_line
from pipeline.base.names import is_securable_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_CATALOG_MANAGED: Final = "catalogManaged"  # the feature of tables whose commits the catalog coordinates


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """The answer to one question; None: it could not be asked."""

    question: str
    answer: str
    is_good: bool | None


def try_managed(spark: "SparkSession", schema: str, open_files: "Callable[[str], object]") -> Iterator[TrialAnswer]:
    """Try a new managed table in a schema, and yield what was found; it is dropped at the end.

    Args:
        spark: the session; in a workspace the platform's.
        schema: `CATALOG.SCHEMA`, or a schema alone where there is one catalog.
        open_files: opens a table by its location as the `direct` writer does.

    Raises:
        Refused: the schema is not spelled as one.
    """
    if not all(is_securable_part(part) for part in schema.split(".")):
        raise Refused(f"{schema!r} names no schema. Give CATALOG.SCHEMA in letters, digits, '_' and '-'.")
    named = ".".join(f"`{part}`" for part in schema.split("."))
    table = f"{named}.`turnout_trial_{uuid.uuid4().hex}`"
    try:
        yield from _answers(spark, table, open_files)
    finally:
        with suppress(Exception):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def _answers(spark: "SparkSession", table: str, open_files: "Callable[[str], object]") -> Iterator[TrialAnswer]:
    asked = "Spark makes a managed table here"
    try:
        spark.sql(f"CREATE TABLE {table} (_seq BIGINT) USING DELTA")
    except Exception as error:  # noqa: BLE001 - an answer, whatever Spark or the catalog raises
        yield TrialAnswer(asked, first_line(error), is_good=False)
        return
    detail = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0].asDict()
    features = detail.get("tableFeatures") or []
    yield TrialAnswer(asked, f"yes, at {detail['location']}", is_good=True)
    coordinates = _CATALOG_MANAGED in features
    words = f"{'yes' if coordinates else 'no'}; features: {', '.join(features) or 'not reported'}"
    yield TrialAnswer("The catalog coordinates its commits", words, is_good=None)
    asked = "A repeated append with one txnVersion lands once"
    try:
        for _ in range(2):
            rows = spark.createDataFrame([(1,)], "_seq BIGINT").write.format("delta").mode("append")
            rows.options(txnAppId="turnout/trial", txnVersion="1").saveAsTable(table)
        count = spark.table(table).count()
        yield TrialAnswer(asked, f"{count} row(s)", is_good=count == 1)
    except Exception as error:  # noqa: BLE001 - an answer
        yield TrialAnswer(asked, first_line(error), is_good=False)
    asked = "The direct writer can open it by its location"
    try:
        open_files(str(detail["location"]))
        yield TrialAnswer(asked, "yes", is_good=None)
    except Exception as error:  # noqa: BLE001 - an answer
        yield TrialAnswer(asked, f"no: {first_line(error)}", is_good=None)
