"""The packages of a Databricks runtime."""

import re

from packaging.utils import canonicalize_name

from tests.checkout import ROOT

RUNTIME: dict[str, str] = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)$", (ROOT / "tests/packaging/runtime-19.txt").read_text(), re.MULTILINE
    )
}
KEPT = {
    "pyspark", "py4j", "delta-spark", "pyarrow", "pandas", "numpy", "protobuf", "grpcio", "grpcio-status",
    "googleapis-common-protos", "mlflow-skinny", "setuptools",
}  # fmt: skip
"""Spark, Delta and Spark Connect of a runtime are made of these; another version there is nobody's combination."""
REPLACED = {"certifi", "click", "databricks-sdk", "deltalake", "idna"}
"""Pip installs these anew on runtime 19: libraries of ours in another version, and requirements of theirs."""
