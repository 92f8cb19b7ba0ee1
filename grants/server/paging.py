"""Pages as Databricks gives them: an opaque token says where the next begins."""

from collections.abc import Sequence
from typing import Final

from grants.server.calls import Call, invalid

_MAX_ROWS: Final = 150  # of one page


def page(call: Call, keys: Sequence[str]) -> tuple[Sequence[str], dict[str, str]]:
    """Return the keys of the requested page, and what its answer says of the next one.

    `keys` are all there are, sorted, none twice.
    """
    after = _after(call.query.get("page_token", ""))
    left = [key for key in keys if key > after]
    size = min(call.number("max_results", 0) or _MAX_ROWS, _MAX_ROWS)
    shown = left[:size]
    return shown, {"next_page_token": shown[-1].encode().hex()} if len(left) > size else {}


def _after(token: str) -> str:
    """Return where a token says that its page begins."""
    try:
        return bytes.fromhex(token).decode()
    except ValueError as error:
        raise invalid("page_token is invalid.") from error
