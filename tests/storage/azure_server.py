"""An Azure Blob server in this process: what object_store's client of Azure asks for, over objects in memory.

https://learn.microsoft.com/en-us/rest/api/storageservices/blob-service-rest-api says how Azure behaves. Signatures
are not checked. Leases, snapshots, versions, tags and users' metadata are not kept, nor are conditions of a read.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from tests.storage.objects import Answer, Objects, Page, Request, Stored, batched, ranged, serving

ACCOUNT: Final = "devstoreaccount1"
"""The account of every emulator of Azure, and of ours.

https://learn.microsoft.com/en-us/azure/storage/common/storage-connect-azurite
"""


@contextmanager
def azure() -> Iterator[str]:
    """Run an Azure Blob server in this process, with an empty container, and yield the container's URL."""
    name = f"tables-{uuid.uuid4()}"
    with serving(_Azure(name).respond) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        patch.setenv("AZURITE_BLOB_STORAGE_URL", url)
        yield f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"


_EVERY: Final = {
    "x-ms-blob-type": "BlockBlob",
    "x-ms-lease-state": "available",
    "x-ms-lease-status": "unlocked",
    "x-ms-request-id": "0",
    "x-ms-server-encrypted": "true",
    "x-ms-version": "2021-08-06",
}
"""Headers of every blob; Arrow's client ends the process where one is missing."""


class _Azure:
    """One container. A method is one operation of the REST API, which its docstring names."""

    def __init__(self, container: str) -> None:
        self.container = container
        self.blobs = Objects()

    def respond(self, request: Request) -> Answer:
        """Answer a request for `/ACCOUNT/CONTAINER/BLOB`, as emulators' paths are."""
        account, _, path = request.path.removeprefix("/").partition("/")
        container, _, name = path.partition("/")
        if (unquote(account), unquote(container)) != (ACCOUNT, self.container):
            return _refused(404, "ContainerNotFound")
        name = unquote(name)
        if "action" in request.query:  # of Data Lake's own protocol: Arrow learns so that names are not hierarchical
            return Answer(400)
        match request.method, request.query.get("comp"):
            case "GET", "list":
                return self._list(request.query)
            case "POST", "batch":
                return batched(request, self.respond, 202)
            case (("GET" | "HEAD"), None):
                return self._get(request, name)
            case "DELETE", None:
                return self._delete(name)
            case "PUT", "block":
                return self._put_block(request, name)
            case "PUT", ("blocklist" | None):
                return self._refusal(request, name) or self._write(request, name)
        raise NotImplementedError

    def _write(self, request: Request, name: str) -> Answer:
        if request.query.get("comp") == "blocklist":
            return self._put_block_list(request, name)
        if "x-ms-copy-source" in request.headers:
            return self._copy(request, name)
        return self._put(request, name)

    def _put(self, request: Request, name: str) -> Answer:
        """Put Blob (https://learn.microsoft.com/en-us/rest/api/storageservices/put-blob)."""
        if request.headers["x-ms-blob-type"] != "BlockBlob":
            raise NotImplementedError
        return Answer(201, headers=_tags(self.blobs.put(name, request.body, _media_type(request))))

    def _refusal(self, request: Request, name: str) -> Answer | None:
        """Refuse a write whose condition does not hold.

        `If-None-Match: *` is 409 where the blob exists; another tag than that of `If-Match` is 412.
        https://learn.microsoft.com/en-us/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations
        """
        stored = self.blobs.named.get(name)
        if request.headers["If-None-Match"] == "*" and stored is not None:
            return _refused(409, "BlobAlreadyExists")
        wanted = request.headers["If-Match"]
        if wanted is not None and (stored is None or wanted != _tags(stored)["ETag"]):
            return _refused(412, "ConditionNotMet")
        return None

    def _put_block(self, request: Request, name: str) -> Answer:
        """Put Block (https://learn.microsoft.com/en-us/rest/api/storageservices/put-block)."""
        self.blobs.uploads.setdefault(name, {})[request.query["blockid"]] = request.body
        return Answer(201)

    def _put_block_list(self, request: Request, name: str) -> Answer:
        """Put Block List (https://learn.microsoft.com/en-us/rest/api/storageservices/put-block-list).

        A block that was not put is 400; the blocks that the list does not name are gone.
        """
        blocks = self.blobs.uploads.get(name, {})
        wanted = [str(block.text) for block in ET.fromstring(request.body)]
        if not blocks.keys() >= set(wanted):
            return _refused(400, "InvalidBlockList")
        self.blobs.uploads.pop(name, None)
        content = b"".join(blocks[block] for block in wanted)
        return Answer(201, headers=_tags(self.blobs.put(name, content, _media_type(request))))

    def _copy(self, request: Request, name: str) -> Answer:
        """Copy Blob (https://learn.microsoft.com/en-us/rest/api/storageservices/copy-blob).

        Azure may copy later; inside one account the answer comes after the copy, as here.
        """
        source = urlsplit(request.headers["x-ms-copy-source"]).path.removeprefix(f"/{ACCOUNT}/{self.container}/")
        stored = self.blobs.named.get(unquote(source))
        if stored is None:
            return _refused(404, "BlobNotFound")
        copied = self.blobs.put(name, stored.content, stored.media_type)
        return Answer(202, headers={**_tags(copied), "x-ms-copy-id": str(uuid.uuid4()), "x-ms-copy-status": "success"})

    def _get(self, request: Request, name: str) -> Answer:
        """Get Blob (https://learn.microsoft.com/en-us/rest/api/storageservices/get-blob).

        And Get Blob Properties, which is HEAD: its length is the blob's. `x-ms-range` goes before `Range`.
        """
        stored = self.blobs.named.get(name)
        if stored is None:
            return _refused(404, "BlobNotFound")
        headers = {
            **_tags(stored),
            **_EVERY,
            "Content-Type": stored.media_type,
            "x-ms-creation-time": stored.last_modified,
        }
        wanted = request.headers["x-ms-range"] or request.headers["Range"]
        return ranged(wanted, stored, headers) or _refused(416, "InvalidRange")

    def _delete(self, name: str) -> Answer:
        """Delete Blob (https://learn.microsoft.com/en-us/rest/api/storageservices/delete-blob)."""
        return Answer(202) if self.blobs.named.pop(name, None) else _refused(404, "BlobNotFound")

    def _list(self, query: dict[str, str]) -> Answer:
        """List Blobs (https://learn.microsoft.com/en-us/rest/api/storageservices/list-blobs).

        A page may be shorter than the 5,000 that Azure gives at most. `startFrom` is the first name that is given.
        """
        page = self.blobs.page(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            token=query.get("marker"),
            start=query.get("startFrom", ""),
            limit=query.get("maxresults"),
        )
        return Answer(200, self._rendered(page).encode(), {"Content-Type": "application/xml"})

    def _rendered(self, page: Page) -> str:
        blobs = "".join(
            f"<Blob><Name>{escape(stored.name)}</Name><Properties><Last-Modified>{stored.last_modified}</Last-Modified>"
            f"<Etag>{_tag(stored)}</Etag><Content-Length>{len(stored.content)}</Content-Length>"
            f"<Content-Type>{escape(stored.media_type)}</Content-Type><BlobType>BlockBlob</BlobType></Properties></Blob>"
            for stored in page.objects
        )
        groups = "".join(f"<BlobPrefix><Name>{escape(prefix)}</Name></BlobPrefix>" for prefix in page.prefixes)
        return (
            "<?xml version='1.0' encoding='utf-8'?>"
            f"<EnumerationResults ContainerName='{self.container}'><Blobs>{blobs}{groups}</Blobs>"
            f"<NextMarker>{page.token or ''}</NextMarker></EnumerationResults>"
        )


def _tag(stored: Stored) -> str:
    """Name the version of a blob: a listing gives this, a header gives it in quotes."""
    return f"0x{stored.generation:X}"


def _tags(stored: Stored) -> dict[str, str]:
    return {"ETag": f'"{_tag(stored)}"', "Last-Modified": stored.last_modified}


def _media_type(request: Request) -> str | None:
    return request.headers["x-ms-blob-content-type"] or request.headers["Content-Type"]


def _refused(status: int, code: str) -> Answer:
    """Say an error (https://learn.microsoft.com/en-us/rest/api/storageservices/status-and-error-codes2)."""
    body = f"<?xml version='1.0' encoding='utf-8'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml", "x-ms-error-code": code})
