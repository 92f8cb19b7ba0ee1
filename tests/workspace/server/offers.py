"""Offers of a workspace: runtimes, node types, its metastore [sdk compute, ClustersAPI; sdk catalog, MetastoresAPI]."""

from typing import Final

from tests.workspace.server.calls import Call, Json, route

_RUNTIMES: Final = {
    "19.0.x-scala2.13": "19.0 Beta (includes Apache Spark 4.2.0, Scala 2.13)",
    "18.0.x-scala2.13": "18.0 LTS (includes Apache Spark 4.1.0, Scala 2.13)",
    "17.3.x-scala2.13": "17.3 LTS (includes Apache Spark 4.0.0, Scala 2.13)",
}
"""Spark of each runtime [doc release-notes/runtime]."""

_NODES: Final = {"m6gd.large": (8_192, 2.0), "m6gd.xlarge": (16_384, 4.0)}  # MB, cores


@route("GET", "/api/2.1/clusters/spark-versions")
def runtimes(call: Call) -> Json:
    """List runtimes."""
    return {"versions": [{"key": key, "name": name} for key, name in _RUNTIMES.items()]}


@route("GET", "/api/2.1/clusters/list-node-types")
def node_types(call: Call) -> Json:
    """List types of nodes."""
    return {
        "node_types": [
            {
                "node_type_id": name, "memory_mb": memory, "num_cores": cores, "description": name,
                "instance_type_id": name, "category": "General Purpose", "is_deprecated": False,
            }
            for name, (memory, cores) in _NODES.items()
        ]
    }  # fmt: skip


@route("GET", "/api/2.1/unity-catalog/metastore_summary")
def metastore(call: Call) -> Json:
    """Return the metastore, with the flag that vending credentials takes."""
    return {
        "metastore_id": "5c6a0b1e-0000-4000-8000-000000000001", "name": "standin", "cloud": "aws",
        "region": "us-east-1",
        "external_access_enabled": call.world.settings.external_access,
    }  # fmt: skip
