"""Statuses by which a request or a stream of the edge ends, with google.rpc's details. Pure."""

import math
from typing import Final

from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

DOMAIN: Final = "turnout"
"""The domain of ErrorInfo."""


class EdgeStatus(Exception):
    """The end of a request or a stream; not of a single event, whose refusal is a part of an answer."""

    def __init__(self, code: int, reason: str, message: str, retry_seconds: float | None = None) -> None:
        """Keep a code of google.rpc, a reason in capitals, a sentence, and after how long to try again."""
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_seconds = code, reason, message, retry_seconds

    @property
    def code_name(self) -> str:
        """Name of the code, for metrics."""
        return str(code_pb2.Code.Name(self.code))

    @property
    def status(self) -> status_pb2.Status:
        """The status as it goes over the wire."""
        made = status_pb2.Status(code=self.code, message=self.message)
        made.details.append(_packed(error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN)))
        if self.retry_seconds is not None:
            whole = math.floor(self.retry_seconds)
            delay = duration_pb2.Duration(seconds=whole, nanos=int((self.retry_seconds - whole) * 1e9))
            made.details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
        return made


def invalid(reason: str, message: str) -> EdgeStatus:
    """Return the status of a request that will never be taken as it is."""
    return EdgeStatus(code_pb2.INVALID_ARGUMENT, reason, message)


def unauthenticated(reason: str, message: str) -> EdgeStatus:
    """Return the status of a caller without a token that counts."""
    return EdgeStatus(code_pb2.UNAUTHENTICATED, reason, message)


def exhausted(reason: str, message: str, retry_seconds: float) -> EdgeStatus:
    """Return the status of a request for which there is no room now; nothing of it was taken."""
    return EdgeStatus(code_pb2.RESOURCE_EXHAUSTED, reason, message, retry_seconds)


def unavailable(reason: str, message: str, retry_seconds: float = 1.0) -> EdgeStatus:
    """Return the status of a request that another try, perhaps at another edge, may bring into the log."""
    return EdgeStatus(code_pb2.UNAVAILABLE, reason, message, retry_seconds)


def too_late(reason: str, message: str) -> EdgeStatus:
    """Return the status of a request that was not acknowledged in time: it may be in the log all the same."""
    return EdgeStatus(code_pb2.DEADLINE_EXCEEDED, reason, message)


def out_of_range(message: str) -> EdgeStatus:
    """Return the status of a follower whose position is nowhere any more."""
    return EdgeStatus(code_pb2.OUT_OF_RANGE, "POSITION_GONE", f"{message}: begin at offsets, without a token")


def _packed(detail: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo) -> any_pb2.Any:
    made = any_pb2.Any()
    made.Pack(detail)
    return made
