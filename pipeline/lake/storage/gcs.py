"""Google Cloud Storage: `gs://bucket`, by the application's default credentials.

`GOOGLE_APPLICATION_CREDENTIALS` names a file, else they are those of gcloud or of the machine's service account.
`GOOGLE_BASE_URL` names a server of one's own, which is asked without credentials.

Source of Spark's settings: https://github.com/GoogleCloudDataproc/hadoop-connectors/blob/master/gcs/CONFIGURATION.md
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from obstore.store import GCSStore

from pipeline.lake.storage import cloud

_CLASSES: Final = "com.google.cloud.hadoop.fs.gcs"


@dataclass(frozen=True, slots=True)
class Gcs:
    """See `Cloud`."""

    @property
    def scheme(self) -> str:
        """See `Cloud`."""
        return "gs"

    @property
    def jars(self) -> cloud.Jars:
        """See `Cloud`."""
        return "gcs"

    def client(self, bucket: str) -> GCSStore:
        """See `Cloud`."""
        return _client(_server(), bucket)

    def arrow(self, bucket: str) -> tuple[Any, str]:
        """See `Cloud`."""
        return _arrow(_server()), bucket

    def options(self) -> Mapping[str, str]:
        """See `Cloud`."""
        server = _server()
        key = {f"google_{name}": value for name, value in _account(server).items()}
        return {**key, **({"allow_http": "true"} if server else {}), **cloud.OPTIONS}

    def hadoop(self) -> Mapping[str, str]:
        """See `Cloud`."""
        server = _server()
        conf = {
            "fs.gs.impl": f"{_CLASSES}.GoogleHadoopFileSystem",
            "fs.AbstractFileSystem.gs.impl": f"{_CLASSES}.GoogleHadoopFS",
            "fs.gs.auth.type": "UNAUTHENTICATED" if server else "APPLICATION_DEFAULT",
            "fs.gs.http.max.retry": "5",
            # The connector is older than Spark's Hadoop: it cannot read the default "64m", nor several ranges at once.
            "fs.gs.block.size": "67108864",
            "parquet.hadoop.vectored.io.enabled": "false",
        }
        return {**conf, **({"fs.gs.storage.root.url": server} if server else {})}

    def variables(self) -> Mapping[str, str]:
        """See `Cloud`."""
        server = _server()
        return {"GOOGLE_BASE_URL": server} if server else {}


def _server() -> str:
    """Return the address of a server of one's own, empty: Google's."""
    return cloud.checked_address("GOOGLE_BASE_URL", os.environ.get("GOOGLE_BASE_URL") or "")


def _account(server: str) -> dict[str, str]:
    """Return the key of nobody, with which obstore and delta-rs ask a server of one's own."""
    if not server:
        return {}
    nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return {"service_account_key": json.dumps({"gcs_base_url": server, "disable_oauth": True, **nobody})}


@cache  # per process: a client keeps its connections
def _client(server: str, bucket: str) -> GCSStore:
    given: Any = _account(server)
    return GCSStore(bucket, config=given, client_options=cloud.patience(server), retry_config=cloud.RETRY)


@cache
def _arrow(server: str) -> Any:
    from pyarrow.fs import GcsFileSystem

    scheme, _, host = server.rpartition("://")
    return GcsFileSystem(anonymous=bool(server), scheme=scheme or "https", endpoint_override=host or None)
