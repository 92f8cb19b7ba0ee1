"""Azure Data Lake Storage: `abfss://container@account.dfs.core.windows.net`, by the variables `AZURE_…`.

Of credentials the first that is there counts: an account's key, a federated token, a client's secret, a shared access
signature, the machine's managed identity. That is the order of obstore and delta-rs, and Spark gets the same one. An
emulator (Azurite) is named by `AZURE_STORAGE_USE_EMULATOR=true` and `AZURITE_BLOB_STORAGE_URL`.

Source of the order: `resolve_credential_auto` in https://github.com/apache/arrow-rs-object-store, src/azure/builder.rs;
of Spark's settings: https://hadoop.apache.org/docs/stable/hadoop-azure/abfs.html
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from obstore.store import AzureStore

from pipeline.lake.storage import cloud

_ACCOUNT: Final = "fs.azure.account"
_AUTHORITY: Final = "https://login.microsoftonline.com"
_EMULATED_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Key of every emulator's only account, as Microsoft publishes it."""

_Credential = Literal["key", "federated", "secret", "signature", "managed"]
_FIRST: Final[dict[str, _Credential]] = {
    "AZURE_STORAGE_ACCOUNT_KEY": "key",
    "AZURE_FEDERATED_TOKEN_FILE": "federated",
    "AZURE_CLIENT_SECRET": "secret",
    "AZURE_STORAGE_SAS_TOKEN": "signature",
}
_FOR_ARROW: Final[dict[_Credential, dict[str, str]]] = {  # of the others it finds the variables itself
    "key": {"AZURE_STORAGE_ACCOUNT_KEY": "account_key"},
    "secret": {
        "AZURE_TENANT_ID": "tenant_id",
        "AZURE_CLIENT_ID": "client_id",
        "AZURE_CLIENT_SECRET": "client_secret",
    },
    "signature": {"AZURE_STORAGE_SAS_TOKEN": "sas_token"},
}


@dataclass(frozen=True, slots=True)
class Azure:
    """See `Cloud`."""

    @property
    def scheme(self) -> str:
        """See `Cloud`; Hadoop reads an emulator without TLS by another scheme."""
        return "abfs" if _emulator() else "abfss"

    @property
    def jars(self) -> cloud.Jars:
        """See `Cloud`."""
        return "azure"

    def client(self, bucket: str) -> AzureStore:
        """See `Cloud`."""
        return _client(_emulator(), bucket)

    def arrow(self, bucket: str) -> tuple[Any, str]:
        """See `Cloud`."""
        container, account = _parts(bucket)
        if emulator := _emulator():
            return _arrow(account, emulator, (("account_key", _EMULATED_KEY),)), container
        given = tuple((argument, os.environ.get(name)) for name, argument in _FOR_ARROW.get(_credential(), {}).items())
        return _arrow(account, "", given), container

    def options(self) -> Mapping[str, str]:
        """See `Cloud`: delta-rs reads the same variables."""
        return {"allow_http": "true" if _emulator() else "false", **cloud.OPTIONS}

    def hadoop(self) -> Mapping[str, str]:
        """See `Cloud`; Hadoop itself replaces `${env.…}` by the variable's value."""
        conf = {
            "fs.azure.ssl.channel.mode": "Default_JSSE",
            # A store that is away fails a read after half a minute, and not after many.
            "fs.azure.io.retry.max.retries": "5",
            "fs.azure.io.retry.max.backoff.interval": "5000",
        }
        if emulator := _emulator():
            return {**conf, **_emulated(emulator)}
        return {**conf, **_hadoop_credentials()}

    def variables(self) -> Mapping[str, str]:
        """See `Cloud`."""
        names = ("AZURE_STORAGE_USE_EMULATOR", "AZURITE_BLOB_STORAGE_URL")
        return {name: os.environ[name] for name in names if os.environ.get(name)}


def _emulator() -> str:
    """Return the address of the emulator that is used instead of Azure, empty: none."""
    if os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() not in {"true", "1"}:
        return ""
    address = os.environ.get("AZURITE_BLOB_STORAGE_URL") or "http://127.0.0.1:10000"
    return cloud.checked_address("AZURITE_BLOB_STORAGE_URL", address)


def _parts(bucket: str) -> tuple[str, str]:
    """Return a bucket's container and account."""
    container, _, host = bucket.partition("@")
    return container, host.partition(".")[0]


@cache  # per process: a client keeps its connections
def _client(emulator: str, bucket: str) -> AzureStore:
    container, account = _parts(bucket)
    return AzureStore(
        container,
        config={"account_name": account},
        client_options=cloud.patience(emulator),
        retry_config=cloud.RETRY,
    )


@cache
def _arrow(account: str, emulator: str, credential: tuple[tuple[str, str | None], ...]) -> Any:
    from pyarrow.fs import AzureFileSystem

    given: dict[str, Any] = dict(credential)
    if emulator:
        scheme, _, host = emulator.partition("://")
        given |= {"blob_storage_authority": host, "blob_storage_scheme": scheme}
        given |= {"dfs_storage_authority": host, "dfs_storage_scheme": scheme}
    return AzureFileSystem(account, **given)


def _emulated(address: str) -> dict[str, str]:
    return {
        "fs.azure.abfs.endpoint": address.partition("://")[2],
        "fs.azure.account.auth.type": "SharedKey",
        "fs.azure.account.key": _EMULATED_KEY,
        "fs.azure.account.hns.enabled": "false",
        "fs.azure.fns.account.service.type": "BLOB",
        "fs.azure.ingress.service.type": "BLOB",
        "fs.azure.always.use.https": "false",
        "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
    }


def _credential() -> _Credential:
    """Return which credentials obstore uses in this environment, by the order of its builder."""
    for name, credential in _FIRST.items():
        if os.environ.get(name):
            return credential
    return "managed"


def _hadoop_credentials() -> dict[str, str]:
    """Return Hadoop's settings for the credentials that obstore uses."""
    client = {f"{_ACCOUNT}.oauth2.client.id": "${env.AZURE_CLIENT_ID}"}
    match _credential():
        case "key":
            return {f"{_ACCOUNT}.auth.type": "SharedKey", f"{_ACCOUNT}.key": "${env.AZURE_STORAGE_ACCOUNT_KEY}"}
        case "federated":
            return {
                **_oauth("WorkloadIdentityTokenProvider"),
                **client,
                f"{_ACCOUNT}.oauth2.msi.tenant": "${env.AZURE_TENANT_ID}",
                f"{_ACCOUNT}.oauth2.token.file": "${env.AZURE_FEDERATED_TOKEN_FILE}",
            }
        case "secret":
            return {
                **_oauth("ClientCredsTokenProvider"),
                **client,
                f"{_ACCOUNT}.oauth2.client.endpoint": f"{_AUTHORITY}/${{env.AZURE_TENANT_ID}}/oauth2/token",
                f"{_ACCOUNT}.oauth2.client.secret": "${env.AZURE_CLIENT_SECRET}",
            }
        case "signature":
            return {f"{_ACCOUNT}.auth.type": "SAS", "fs.azure.sas.fixed.token": "${env.AZURE_STORAGE_SAS_TOKEN}"}
        case "managed":
            return {**_oauth("MsiTokenProvider"), **(client if os.environ.get("AZURE_CLIENT_ID") else {})}


def _oauth(provider: str) -> dict[str, str]:
    classes = "org.apache.hadoop.fs.azurebfs.oauth2"
    return {f"{_ACCOUNT}.auth.type": "OAuth", f"{_ACCOUNT}.oauth.provider.type": f"{classes}.{provider}"}
