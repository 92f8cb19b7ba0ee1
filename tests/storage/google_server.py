"""A Google Cloud Storage server in this process: two APIs over the same objects in memory.

The XML API is that of object_store (https://cloud.google.com/storage/docs/xml-api/overview), the JSON API that of
Hadoop's gcs-connector, and so of Spark (https://cloud.google.com/storage/docs/json_api/v1). Nobody is asked who they
are. Users' metadata and old generations are not kept, nor are conditions of a read, nor the limits of rates.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from tests.storage.google_json import JsonApi, described, tags
from tests.storage.objects import Answer, Objects, Request, batched, ranged, serving


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
        self._xml = XmlApi(bucket, objects)
        self._json = JsonApi(bucket, objects)

    def respond(self, request: Request) -> Answer:
        if request.path == "/batch/storage/v1":
            return batched(request, self.respond, 200)
        _, is_json, path = request.path.partition("/storage/v1/b/")
        return self._json.respond(request, path) if is_json else self._xml.respond(request)


class XmlApi:
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
        return ranged(request.headers["Range"], stored, described(stored)) or _refused(416, "InvalidRange")

    def _put(self, request: Request, name: str) -> Answer:
        """Upload an object, or copy one (https://cloud.google.com/storage/docs/xml-api/put-object-upload).

        `x-goog-if-generation-match` is the generation that is overwritten, 0 for none; otherwise it is 412.
        https://cloud.google.com/storage/docs/xml-api/reference-headers#xgoogifgenerationmatch
        """
        if not self.objects.holds(name, request.headers["x-goog-if-generation-match"]):
            return _refused(412, "PreconditionFailed")
        source = request.headers["x-goog-copy-source"]
        if source is None:
            return Answer(200, headers=tags(self.objects.put(name, request.body, request.headers["Content-Type"])))
        copied = self.objects.named.get(unquote(source.removeprefix("/").partition("/")[2]))
        if copied is None:
            return _refused(404, "NoSuchKey")
        stored = self.objects.put(name, copied.content, copied.media_type)
        fields = f"<ETag>{stored.md5_tag}</ETag><LastModified>{stored.moment}</LastModified>"
        return _as_xml("CopyObjectResult", fields, tags(stored))

    def _delete(self, name: str) -> Answer:
        """Delete an object (https://cloud.google.com/storage/docs/xml-api/delete-object)."""
        return Answer(204) if self.objects.named.pop(name, None) else _refused(404, "NoSuchKey")

    def _list(self, query: dict[str, str]) -> Answer:
        """List a bucket (https://cloud.google.com/storage/docs/xml-api/get-bucket-list).

        Names are after `start-after`.
        """
        page = self.objects.page(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            token=query.get("continuation-token"),
            after=query.get("start-after"),
            limit=query.get("max-keys"),
        )
        contents = "".join(
            f"<Contents><Key>{escape(stored.name)}</Key><Generation>{stored.generation}</Generation>"
            f"<LastModified>{stored.moment}</LastModified><ETag>{stored.md5_tag}</ETag>"
            f"<Size>{len(stored.content)}</Size></Contents>"
            for stored in page.objects
        )
        groups = "".join(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in page.prefixes)
        following = "" if page.token is None else f"<NextContinuationToken>{page.token}</NextContinuationToken>"
        truncated = str(page.token is not None).lower()
        return _as_xml("ListBucketResult", f"{contents}{groups}{following}<IsTruncated>{truncated}</IsTruncated>")

    def _begin(self, name: str) -> Answer:
        """Begin an upload in parts (https://cloud.google.com/storage/docs/xml-api/post-object-multipart)."""
        upload = uuid.uuid4().hex
        self.objects.uploads[upload] = {}
        return _as_xml("InitiateMultipartUploadResult", f"<Key>{escape(name)}</Key><UploadId>{upload}</UploadId>")

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
        return _as_xml("CompleteMultipartUploadResult", f"<ETag>{stored.md5_tag}</ETag>", tags(stored))


def _as_xml(root: str, fields: str, headers: dict[str, str] | None = None) -> Answer:
    body = f"<?xml version='1.0' encoding='UTF-8'?><{root}>{fields}</{root}>"
    return Answer(200, body.encode(), {"Content-Type": "application/xml; charset=UTF-8", **(headers or {})})


def _refused(status: int, code: str) -> Answer:
    """Say an error of the XML API (https://cloud.google.com/storage/docs/xml-api/reference-status)."""
    body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml; charset=UTF-8"})
