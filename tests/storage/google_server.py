"""A Google Cloud Storage server in this process: two APIs over the same objects in memory.

The XML API is that of object_store (https://cloud.google.com/storage/docs/xml-api/overview), the JSON API that of
Hadoop's gcs-connector, and so of Spark (https://cloud.google.com/storage/docs/json_api/v1). Nobody is asked who they
are. Users' metadata and old generations are not kept, nor are conditions of a read, nor the limits of rates.
"""

import base64
import gzip
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from tests.storage.objects import Answer, Objects, Request, Stored, batched, parts, ranged, serving


@contextmanager
def google() -> Iterator[str]:
    """Run a Google Cloud Storage server in this process, with an empty bucket, and yield the bucket's URL."""
    name = f"tables-{uuid.uuid4()}"
    with serving(_Google(name).respond) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_BASE_URL", url)
        yield f"gs://{name}"


class _Google:
    """One bucket. A request is of the JSON API where its path starts as those of that API do."""

    def __init__(self, bucket: str) -> None:
        objects = Objects()
        self._xml = _Xml(bucket, objects)
        self._json = _Json(bucket, objects)

    def respond(self, request: Request) -> Answer:
        if request.path == "/batch/storage/v1":
            return batched(request, self.respond, 200)
        _, is_json, path = request.path.partition("/storage/v1/b/")
        return self._json.respond(request, path) if is_json else self._xml.respond(request)


class _Xml:
    """The XML API. A method is one operation, which its docstring names."""

    def __init__(self, bucket: str, objects: Objects) -> None:
        self.bucket = bucket
        self.objects = objects

    def respond(self, request: Request) -> Answer:
        bucket, _, path = request.path.removeprefix("/").partition("/")
        name = unquote(path)
        if unquote(bucket) != self.bucket:
            return _refused(404, "NoSuchBucket")
        match request.method:
            case "GET" if not name:
                return self._list(request.query)
            case "GET" | "HEAD":
                return self._get(request, name)
            case "PUT" if "partNumber" in request.query:
                return self._put_part(request)
            case "PUT":
                return self._put(request, name)
            case "POST" if "uploads" in request.query:
                return self._begin(name)
            case "POST" if "uploadId" in request.query:
                return self._complete(request, name)
            case "DELETE" if "uploadId" in request.query:
                self.objects.uploads.pop(request.query["uploadId"], None)
                return Answer(204)
            case "DELETE":
                return self._delete(name)
        raise NotImplementedError

    def _get(self, request: Request, name: str) -> Answer:
        """Download an object, or HEAD (https://cloud.google.com/storage/docs/xml-api/get-object-download)."""
        stored = self.objects.named.get(name)
        if stored is None:
            return _refused(404, "NoSuchKey")
        return ranged(request.headers["Range"], stored, _described(stored)) or _refused(416, "InvalidRange")

    def _put(self, request: Request, name: str) -> Answer:
        """Upload an object, or copy one (https://cloud.google.com/storage/docs/xml-api/put-object-upload).

        `x-goog-if-generation-match` is the generation that is overwritten, 0 for none; otherwise it is 412.
        https://cloud.google.com/storage/docs/xml-api/reference-headers#xgoogifgenerationmatch
        """
        if not _holds(request.headers["x-goog-if-generation-match"], self.objects.named.get(name)):
            return _refused(412, "PreconditionFailed")
        source = request.headers["x-goog-copy-source"]
        if source is None:
            return Answer(200, headers=_tags(self.objects.put(name, request.body, request.headers["Content-Type"])))
        copied = self.objects.named.get(unquote(source.removeprefix("/").partition("/")[2]))
        if copied is None:
            return _refused(404, "NoSuchKey")
        stored = self.objects.put(name, copied.content, copied.media_type)
        fields = f"<ETag>{_etag(stored)}</ETag><LastModified>{_time(stored)}</LastModified>"
        return _said("CopyObjectResult", fields, _tags(stored))

    def _delete(self, name: str) -> Answer:
        """Delete an object (https://cloud.google.com/storage/docs/xml-api/delete-object)."""
        return Answer(204) if self.objects.named.pop(name, None) else _refused(404, "NoSuchKey")

    def _list(self, query: dict[str, str]) -> Answer:
        """List a bucket (https://cloud.google.com/storage/docs/xml-api/get-bucket-list).

        Names are after `start-after`. A token that came with the page before goes before it.
        """
        token = _name(query.get("continuation-token")) or query.get("start-after")
        page = self.objects.page(query.get("prefix", ""), query.get("delimiter", ""), token, query.get("max-keys"))
        contents = "".join(
            f"<Contents><Key>{escape(stored.name)}</Key><Generation>{stored.generation}</Generation>"
            f"<LastModified>{_time(stored)}</LastModified><ETag>{_etag(stored)}</ETag>"
            f"<Size>{len(stored.content)}</Size></Contents>"
            for stored in page.objects
        )
        groups = "".join(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in page.prefixes)
        following = "" if page.token is None else f"<NextContinuationToken>{_token(page.token)}</NextContinuationToken>"
        truncated = str(page.token is not None).lower()
        return _said("ListBucketResult", f"{contents}{groups}{following}<IsTruncated>{truncated}</IsTruncated>")

    def _begin(self, name: str) -> Answer:
        """Begin an upload in parts (https://cloud.google.com/storage/docs/xml-api/post-object-multipart)."""
        upload = uuid.uuid4().hex
        self.objects.uploads[upload] = {}
        return _said("InitiateMultipartUploadResult", f"<Key>{escape(name)}</Key><UploadId>{upload}</UploadId>")

    def _put_part(self, request: Request) -> Answer:
        """Upload a part (https://cloud.google.com/storage/docs/xml-api/put-object-multipart)."""
        upload = self.objects.uploads.get(request.query["uploadId"])
        if upload is None:
            return _refused(404, "NoSuchUpload")
        upload[request.query["partNumber"]] = request.body
        return Answer(200, headers={"ETag": f'"{request.query["partNumber"]}"'})

    def _complete(self, request: Request, name: str) -> Answer:
        """Make an object of parts (https://cloud.google.com/storage/docs/xml-api/post-object-complete)."""
        upload = self.objects.uploads.get(request.query["uploadId"])
        if upload is None:
            return _refused(404, "NoSuchUpload")
        numbers = [str(number.text) for number in ET.fromstring(request.body).iter("PartNumber")]
        if not upload.keys() >= set(numbers):
            return _refused(400, "InvalidPart")
        del self.objects.uploads[request.query["uploadId"]]
        stored = self.objects.put(name, b"".join(upload[number] for number in numbers))
        return _said("CompleteMultipartUploadResult", f"<ETag>{_etag(stored)}</ETag>", _tags(stored))


class _Json:
    """The JSON API. A method is one operation, which its docstring names. All fields are sent, whatever is asked."""

    def __init__(self, bucket: str, objects: Objects) -> None:
        self.bucket = bucket
        self.objects = objects
        self.sessions: dict[str, tuple[dict[str, str], bytes]] = {}
        """What resumable uploads began with, and what came of each until now."""

    def respond(self, request: Request, path: str) -> Answer:
        match request.method, [unquote(segment) for segment in path.split("/")]:
            case _, [bucket, *_] if bucket != self.bucket:
                return _failed(404, "notFound")
            case "GET", [name]:
                return _object({"kind": "storage#bucket", "id": name, "name": name, "location": "US"})
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
        raise NotImplementedError

    def _get(self, request: Request, name: str) -> Answer:
        """Get an object or what is known of it (https://cloud.google.com/storage/docs/json_api/v1/objects/get)."""
        stored = self.objects.named.get(name)
        if stored is None:
            return _failed(404, "notFound")
        if request.query.get("alt") != "media":
            return _object(self._resource(stored))
        wanted = request.headers["Range"]
        return ranged(wanted, stored, _described(stored)) or _failed(416, "requestedRangeNotSatisfiable")

    def _list(self, query: dict[str, str]) -> Answer:
        """List a bucket (https://cloud.google.com/storage/docs/json_api/v1/objects/list).

        With `includeTrailingDelimiter` an object whose name is a prefix that is listed is listed too.
        """
        token, start = _name(query.get("pageToken")), query.get("startOffset", "")
        limit = query.get("maxResults")
        page = self.objects.page(query.get("prefix", ""), query.get("delimiter", ""), token, limit, start)
        also = page.prefixes if query.get("includeTrailingDelimiter") == "true" else []
        items = [*page.objects, *(self.objects.named[name] for name in also if name in self.objects.named)]
        answer: dict[str, Any] = {"kind": "storage#objects", "prefixes": page.prefixes}
        answer["items"] = [self._resource(stored) for stored in sorted(items, key=lambda stored: stored.name)]
        return _object(answer if page.token is None else {**answer, "nextPageToken": _token(page.token)})

    def _insert(self, request: Request) -> Answer:
        """Upload an object (https://cloud.google.com/storage/docs/json_api/v1/objects/insert)."""
        match request.query["uploadType"]:
            case "media":
                return self._create({"contentType": request.headers["Content-Type"], **request.query}, request.body)
            case "multipart":
                (_, told), (headers, content) = parts(request)
                return self._create(
                    {"contentType": headers["Content-Type"], **json.loads(told), **request.query}, content
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
        if session not in self.sessions:
            return _failed(404, "notFound")
        wanted, content = self.sessions[session]
        span, _, size = (request.headers["Content-Range"] or "bytes */*").removeprefix("bytes ").partition("/")
        if span != "*":
            content = content[: int(span.partition("-")[0])] + request.body
        self.sessions[session] = wanted, content
        if size != "*" and int(size) == len(content):
            del self.sessions[session]
            return self._create(wanted, content)
        return Answer(308, headers={"Range": f"bytes=0-{len(content) - 1}"} if content else {})

    def _create(self, wanted: dict[str, str], content: bytes) -> Answer:
        name = wanted["name"]
        if not _holds(wanted.get("ifGenerationMatch"), self.objects.named.get(name)):
            return _failed(412, "conditionNotMet")
        return _object(self._resource(self.objects.put(name, content, wanted.get("contentType"))))

    def _delete(self, query: dict[str, str], name: str) -> Answer:
        """Delete an object (https://cloud.google.com/storage/docs/json_api/v1/objects/delete)."""
        if name not in self.objects.named:
            return _failed(404, "notFound")
        if not _holds(query.get("ifGenerationMatch"), self.objects.named[name]):
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

    def _compose(self, request: Request, name: str) -> Answer:
        """Join objects (https://cloud.google.com/storage/docs/json_api/v1/objects/compose)."""
        told = _sent(request)
        sources = [self.objects.named.get(source["name"]) for source in told["sourceObjects"]]
        if None in sources:
            return _failed(404, "notFound")
        content = b"".join(source.content for source in sources if source is not None)
        return self._create({**told.get("destination", {}), **request.query, "name": name}, content)

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
            "size": str(len(stored.content)),
            "contentType": stored.media_type,
            "timeCreated": _time(stored),
            "updated": _time(stored),
        }


def _holds(wanted: str | None, stored: Stored | None) -> bool:
    return wanted is None or int(wanted) == (stored.generation if stored else 0)


def _etag(stored: Stored) -> str:
    """Make the tag of the XML API, which two objects of one content share."""
    return f'"{stored.md5.hex()}"'


def _tags(stored: Stored) -> dict[str, str]:
    return {"ETag": _etag(stored), "x-goog-generation": str(stored.generation), "x-goog-metageneration": "1"}


def _described(stored: Stored) -> dict[str, str]:
    length = str(len(stored.content))
    told = {"x-goog-stored-content-length": length, "x-goog-stored-content-encoding": "identity"}
    return {**_tags(stored), **told, "Last-Modified": stored.last_modified, "Content-Type": stored.media_type}


def _time(stored: Stored) -> str:
    return stored.modified.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _token(name: str) -> str:
    return base64.b64encode(name.encode()).decode()


def _name(token: str | None) -> str | None:
    return base64.b64decode(token).decode() if token else None


def _said(root: str, fields: str, headers: dict[str, str] | None = None) -> Answer:
    body = f"<?xml version='1.0' encoding='UTF-8'?><{root}>{fields}</{root}>"
    return Answer(200, body.encode(), {"Content-Type": "application/xml; charset=UTF-8", **(headers or {})})


def _refused(status: int, code: str) -> Answer:
    """Say an error of the XML API (https://cloud.google.com/storage/docs/xml-api/reference-status)."""
    body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml; charset=UTF-8"})


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
