"""The JSON API of the stand-in of Google Cloud Storage, as far as Hadoop's gcs-connector, and so Spark, asks for it.

https://cloud.google.com/storage/docs/json_api/v1 says how Google behaves. All fields of an object are sent, whichever
the client names.
"""

import base64
import gzip
import json
import uuid
from functools import lru_cache, reduce
from typing import Any, Final
from urllib.parse import unquote

from tests.storage.objects import Answer, Objects, Request, Stored, parts, ranged

_BORN: Final = "2026-01-01T00:00:00.000Z"
"""When the bucket was made."""

_CRC32C: Final = [reduce(lambda crc, _: (crc >> 1) ^ (0x82F63B78 * (crc & 1)), range(8), byte) for byte in range(256)]


class JsonApi:
    """One bucket. A method is one operation of the API, which its docstring names."""

    def __init__(self, bucket: str, objects: Objects) -> None:
        self.bucket = bucket
        self.objects = objects
        self.sessions: dict[str, tuple[dict[str, str], bytes]] = {}
        """Resumable uploads: the first request of each, and its bytes until now."""
        self.ended: dict[str, Answer] = {}
        """The answers to uploads that ended, given again where one was lost."""

    def respond(self, request: Request, path: str) -> Answer:
        match request.method, [unquote(segment) for segment in path.split("/")]:
            case _, [bucket, *_] if bucket != self.bucket:
                return _failed(404, "notFound")
            case "GET", [name]:
                born = {"timeCreated": _BORN, "updated": _BORN, "metageneration": "1"}
                return _object({"kind": "storage#bucket", "id": name, "name": name, "location": "US", **born})
            case "GET", [_, "o"]:
                return self._list(request.query)
            case "POST", [_, "o"]:
                return self._insert(request)
            case "PUT", [_, "o"]:
                return self._resume(request)
            case "GET", [_, "o", name]:
                return self._get(request, name)
            case "DELETE", [_, "o", name]:
                return self._delete(request.query, name)
            case "POST", [_, "o", name, "compose"]:
                return self._compose(request, name)
            case "POST", [_, "o", name, ("copyTo" | "rewriteTo") as verb, "b", _, "o", target]:
                return self._copy(request.query, name, target, whole=verb == "copyTo")
            case "POST", [_, "o", name, "moveTo", "o", target]:
                return self._move(request.query, name, target)
        raise NotImplementedError

    def _get(self, request: Request, name: str) -> Answer:
        """Get an object or what is known of it (https://cloud.google.com/storage/docs/json_api/v1/objects/get)."""
        stored = self.objects.named.get(name)
        if stored is None:
            return _failed(404, "notFound")
        if request.query.get("generation", str(stored.generation)) != str(stored.generation):
            return _failed(404, "notFound")
        if request.query.get("alt") != "media":
            return _object(self._resource(stored))
        wanted = request.headers["Range"]
        return ranged(wanted, stored, described(stored)) or _failed(416, "requestedRangeNotSatisfiable")

    def _list(self, query: dict[str, str]) -> Answer:
        """List a bucket (https://cloud.google.com/storage/docs/json_api/v1/objects/list).

        With `includeTrailingDelimiter` an object whose name is a prefix that is listed is listed too.
        """
        page = self.objects.page(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            token=query.get("pageToken"),
            start=query.get("startOffset", ""),
            limit=query.get("maxResults"),
        )
        also = page.prefixes if query.get("includeTrailingDelimiter") == "true" else []
        items = [*page.objects, *(self.objects.named[name] for name in also if name in self.objects.named)]
        answer: dict[str, Any] = {"kind": "storage#objects", "prefixes": page.prefixes}
        answer["items"] = [self._resource(stored) for stored in sorted(items, key=lambda stored: stored.name)]
        return _object(answer if page.token is None else {**answer, "nextPageToken": page.token})

    def _insert(self, request: Request) -> Answer:
        """Upload an object (https://cloud.google.com/storage/docs/json_api/v1/objects/insert)."""
        match request.query["uploadType"]:
            case "media":
                return self._create({"contentType": request.headers["Content-Type"], **request.query}, request.body)
            case "multipart":
                (_, sent), (headers, content) = parts(request)
                return self._create(
                    {"contentType": headers["Content-Type"], **json.loads(sent), **request.query}, content
                )
            case "resumable":
                session = uuid.uuid4().hex
                self.sessions[session] = {**_sent(request), **request.query}, b""
                where = f"http://{request.headers['Host']}{request.path}?uploadType=resumable&upload_id={session}"
                return Answer(200, headers={"Location": where})
        raise NotImplementedError

    def _resume(self, request: Request) -> Answer:
        """Take a part of an upload (https://cloud.google.com/storage/docs/performing-resumable-uploads#chunked-upload).

        `Content-Range` is `bytes FIRST-LAST/SIZE`, or `*` for what is not known yet. The last part makes the object.
        """
        session = request.query["upload_id"]
        if session in self.ended:
            return self.ended[session]
        wanted, content = self.sessions[session]
        span, _, size = (request.headers["Content-Range"] or "bytes */*").removeprefix("bytes ").partition("/")
        if span != "*":
            content = content[: int(span.partition("-")[0])] + request.body
        self.sessions[session] = wanted, content
        if size != "*" and int(size) == len(content):
            self.ended[session] = self._create(wanted, content)
            return self.ended[session]
        return Answer(308, headers={"Range": f"bytes=0-{len(content) - 1}"} if content else {})

    def _create(self, wanted: dict[str, str], content: bytes) -> Answer:
        name = wanted["name"]
        if not self.objects.holds(name, wanted.get("ifGenerationMatch")):
            return _failed(412, "conditionNotMet")
        return _object(self._resource(self.objects.put(name, content, wanted.get("contentType"))))

    def _delete(self, query: dict[str, str], name: str) -> Answer:
        """Delete an object (https://cloud.google.com/storage/docs/json_api/v1/objects/delete)."""
        if name not in self.objects.named:
            return _failed(404, "notFound")
        if not self.objects.holds(name, query.get("ifGenerationMatch")):
            return _failed(412, "conditionNotMet")
        del self.objects.named[name]
        return Answer(204)

    def _copy(self, query: dict[str, str], name: str, target: str, *, whole: bool) -> Answer:
        """Copy an object, by one call (https://cloud.google.com/storage/docs/json_api/v1/objects/copy).

        Or by calls until it is done, of which we need one: https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite
        """
        stored = self.objects.named.get(name)
        if stored is None:
            return _failed(404, "notFound")
        copied = self._create({**query, "name": target, "contentType": stored.media_type}, stored.content)
        if whole or copied.status != 200:
            return copied
        size = str(len(stored.content))
        answer = {"kind": "storage#rewriteResponse", "done": True, "objectSize": size, "totalBytesRewritten": size}
        return _object({**answer, "resource": json.loads(copied.body)})

    def _move(self, query: dict[str, str], name: str, target: str) -> Answer:
        """Rename an object in one step (https://cloud.google.com/storage/docs/json_api/v1/objects/move)."""
        if not self.objects.holds(name, query.get("ifSourceGenerationMatch")):
            return _failed(412, "conditionNotMet")
        moved = self._copy(query, name, target, whole=True)
        if moved.status == 200 and name != target:
            del self.objects.named[name]
        return moved

    def _compose(self, request: Request, name: str) -> Answer:
        """Join objects (https://cloud.google.com/storage/docs/json_api/v1/objects/compose)."""
        wanted = _sent(request)
        sources = [self.objects.named.get(source["name"]) for source in wanted["sourceObjects"]]
        if None in sources:
            return _failed(404, "notFound")
        content = b"".join(source.content for source in sources if source is not None)
        return self._create({**wanted.get("destination", {}), **request.query, "name": name}, content)

    def _resource(self, stored: Stored) -> dict[str, str]:
        """Describe an object (https://cloud.google.com/storage/docs/json_api/v1/objects#resource)."""
        return {
            "kind": "storage#object",
            "bucket": self.bucket,
            "name": stored.name,
            "generation": str(stored.generation),
            "metageneration": "1",
            "etag": str(stored.generation),
            "md5Hash": base64.b64encode(stored.md5).decode(),
            "crc32c": base64.b64encode(_crc32c(stored.content)).decode(),
            "size": str(len(stored.content)),
            "contentType": stored.media_type,
            "timeCreated": stored.moment,
            "updated": stored.moment,
        }


def tags(stored: Stored) -> dict[str, str]:
    """Name the version of an object, as both APIs do."""
    return {"ETag": stored.md5_tag, "x-goog-generation": str(stored.generation), "x-goog-metageneration": "1"}


def described(stored: Stored) -> dict[str, str]:
    """Describe an object above its content, as both APIs do."""
    length = str(len(stored.content))
    lengths = {"x-goog-stored-content-length": length, "x-goog-stored-content-encoding": "identity"}
    return {**tags(stored), **lengths, "Last-Modified": stored.last_modified, "Content-Type": stored.media_type}


@lru_cache
def _crc32c(content: bytes) -> bytes:
    """Sum bytes up as gcs-connector does, which refuses what it wrote where the sums differ.

    https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4
    """
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return (crc ^ 0xFFFFFFFF).to_bytes(4)


def _object(fields: dict[str, Any], status: int = 200) -> Answer:
    return Answer(status, json.dumps(fields).encode(), {"Content-Type": "application/json; charset=UTF-8"})


def _failed(status: int, reason: str) -> Answer:
    """Say an error of the JSON API (https://cloud.google.com/storage/docs/json_api/v1/status-codes)."""
    errors = [{"domain": "global", "reason": reason, "message": reason}]
    return _object({"error": {"code": status, "message": reason, "errors": errors}}, status)


def _sent(request: Request) -> Any:
    """Read the JSON that a client sent; Java's sends it packed."""
    packed = request.headers["Content-Encoding"] == "gzip"
    return json.loads((gzip.decompress(request.body) if packed else request.body) or b"{}")
