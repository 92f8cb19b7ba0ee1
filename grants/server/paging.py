"""Pages as Databricks gives them: an opaque token says where the next begins, and a page may be empty all the same."""

from collections.abc import Sequence

from grants.server.calls import Call, invalid

_EMPTY_FIRST = "+"  # in a token: the empty page before this one was given


def page(call: Call, keys: Sequence[str]) -> tuple[Sequence[str], dict[str, str]]:
    """Return the keys of the requested page, and what its answer says of the next one.

    `keys` are all there are, sorted, none twice.
    """
    token = call.query.get("page_token", "")
    troubles = call.state.troubles
    if troubles.empty_pages and not token.startswith(_EMPTY_FIRST):
        return (), {"next_page_token": _EMPTY_FIRST + token}
    after = _after(token.removeprefix(_EMPTY_FIRST))
    left = [key for key in keys if key > after]
    size = max(1, min(call.number("max_results", 0) or troubles.page_rows, troubles.page_rows))
    shown = left[:size]
    return shown, {"next_page_token": shown[-1].encode().hex()} if len(left) > size else {}


def _after(token: str) -> str:
    """Return where a token says that its page begins."""
    try:
        return bytes.fromhex(token).decode()
    except ValueError as error:
        raise invalid("That page_token was not given here.") from error
