"""Links between the pages, and what is chosen on a page kept in its URL: it can be shared, a reload loses nothing.

Streamlit's own `bind="query-params"` writes what people read, a foreign name, and drops what it does not know without
a word; here the URL has keys, and what is not known is reported and stays in it until a person takes it out.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import streamlit as st

from app import formatting
from pipeline.base.texts import join_limited

_MAX_SAID = 4
_LONGEST = 40  # characters of one that is shown
_PAGES = frozenset(
    {
        *("fleet", "game", "games", "groups", "schemas", "repairs"),
        *("access", "operations", "audit", "books", "alerts", "break_it"),
    }
)
_CARRIED = ("range",)  # what a link to another page takes along
_ONCE = ("do",)  # what a link of ours chooses that a reload of its page must not do again: it stays out of the URL
FILTERS: Final = ("status", "group", "q", "sort", "trouble")
"""Filters of the page Fleet, by parameter: a link to a game takes them along, too."""

_ASKED: Final = "links_asked"  # key of what the last link of ours chose
_SLOTS: Final = "links_slots"  # key of the parameters of the page on screen
_PAGE: Final = "links_page"

_WRITTEN: ContextVar[dict[str, tuple[str, ...]] | None] = ContextVar("written", default=None)
"""What this run writes into the URL, by parameter: sent once, at its end."""


@dataclass(slots=True)
class _Slot:
    """How one parameter of the URL stood after the last run of the page."""

    url: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    default: str | None = None
    unknown: tuple[str, ...] = ()
    on_its_way: set[tuple[str, ...]] = field(default_factory=set)  # what the URL was before: a run may still bring it
    laid_over: tuple[str, ...] | None = None  # what the browser's widget holds until one with `chosen` was drawn
    replaced: tuple[str, ...] | None = None  # what it held when a click chose another: the browser may still send it


def game_column(label: str, table: str, width: int) -> Any:
    """Return a table's column of game keys, each of which opens the game's page in this tab.

    A LinkColumn would open another tab. `table` names the table among all of the app's.
    """
    return _column(label, f"{table}_open_game", width, ("game", "game"))


def named_game_column(label: str, table: str, width: int) -> Any:
    """Return a table's column of game names as `remember` knows them, each of which opens the game's page in this tab.

    Its cells must be unique: a click says which text was clicked, and its row may hold another game by now.
    """
    key = f"{table}_open_named"
    return st.column_config.ButtonColumn(
        label,
        width=width,
        help="A click opens its page in this tab.",
        type="tertiary",
        alignment="left",
        key=key,
        on_click=_open_named,
        args=(key, table),
    )


def remember(table: str, games: Mapping[str, str]) -> None:
    """Keep which text of a table's `named_game_column` is which game (text → key) as the viewer sees it now."""
    st.session_state[f"{table}_named"] = dict(games)


def open_page(page: str, query: Mapping[str, str | tuple[str, ...]]) -> None:
    """Open a page of ours in this tab with this choice; the range on screen goes along.

    A page that there is not, as an incident of a newer version may name, opens nothing.
    """
    if page not in _PAGES:
        return
    st.session_state[_ASKED] = dict(query)
    _switch(page, {name: value for name, value in query.items() if name not in _ONCE})


def draw_runbook(name: str, subject: Mapping[str, str], label: str = "Runbook") -> None:
    """Draw the link to a runbook, filled with what `subject` names: a game's key, a group, an incident."""
    st.page_link("views/runbook.py", label=label, query_params={"name": name, **subject})


def filters() -> Mapping[str, list[str]]:
    """Return the filters of the page Fleet that came along to a game, for a link back."""
    return {name: st.query_params.get_all(name) for name in FILTERS if name in st.query_params}


def choice_of_link() -> Mapping[str, str | tuple[str, ...]]:
    """Return once what the link of ours that opened this page chose; nothing where none did.

    It has what a widget's default equals as well, which leaves the URL at the first run.
    """
    chosen: Mapping[str, str | tuple[str, ...]] = st.session_state.pop(_ASKED, {})
    return chosen


def schemas_column(label: str, table: str, width: int) -> Any:
    """Return a table's column of game keys, each of which opens the game's schemas in this tab."""
    return _column(label, f"{table}_open_schemas", width, ("schemas", "game"))


def operation_column(label: str, table: str, width: int) -> Any:
    """Return a table's column of operations as `short` names them, each of which opens its page in this tab."""
    return _column(label, f"{table}_open_operation", width, ("operations", "operation"))


def offer_games(table: str, games: Mapping[str, str]) -> None:
    """Draw, below a table, a list of its games (key → text) that opens one: no key opens a cell of a table."""
    _offer(f"{table}_open", "Open a game", games, ("game", "game"))


def offer_schemas(table: str, games: Mapping[str, str]) -> None:
    """Draw, below a table, a list of its games (key → text) that opens the schemas of one, as `offer_games` does."""
    _offer(f"{table}_open", "Open a game's schemas", games, ("schemas", "game"))


def offer_operations(table: str, operations: Mapping[str, str]) -> None:
    """Draw, below a table, a list of its operations (`short` → text) that opens one, as `offer_games` does."""
    _offer(f"{table}_open", "Open an operation", operations, ("operations", "operation"))


def offer_histories(table: str, games: Mapping[str, str]) -> None:
    """Draw, below a table, a list of games (key → text) that opens the history of one, as `offer_games` does."""
    _offer(f"{table}_history", "History of a game", games, ("operations", "history"))


def short(operation_id: str) -> str:
    """Return an operation's id as people see it, by which its page knows it, too."""
    return operation_id[:8]


def take(
    param: str, widget: str, known: Collection[str] | None = None, *, many: bool = False, default: str | None = None
) -> tuple[str, ...]:
    """Lay what a link says into a widget that is not drawn yet; return what of it is not known, to be reported.

    Args:
        param: the parameter of the URL; one that another page binds is lost when one comes from there.
        widget: the widget's key.
        known: the values there are; None: any text will do.
        many: the widget holds a list of values, else one.
        default: what it holds where the URL says nothing; it is left out of the URL.
    """
    url, slot = tuple(st.query_params.get_all(param)), _slot(param, widget)
    slot.default = default
    drawn = widget in st.session_state
    held = _values(st.session_state[widget], default) if drawn else ()
    if slot.laid_over is not None and held in (slot.laid_over, slot.chosen):
        drawn = False  # the run that laid it was interrupted: Streamlit sends only what this run lays
    elif drawn and held == slot.replaced != slot.chosen and url in slot.on_its_way:
        drawn, url = False, slot.url  # sent before the browser had what a click chose, as its older URL says
    elif drawn and held != slot.chosen:
        return slot.unknown  # just changed by hand: `keep` writes the URL
    if url == slot.url:
        if tuple(st.query_params.get_all(param)) == url:
            slot.on_its_way.clear()
            slot.replaced = slot.replaced if slot.laid_over is not None else None  # None: the browser has it
    elif not drawn or url not in slot.on_its_way:  # a link was opened, or the browser went back
        valid = [value for value in dict.fromkeys(url) if value and (known is None or value in known)]
        slot.chosen = tuple(valid if many else valid[:1])
        slot.unknown = tuple(value for value in dict.fromkeys(url) if value and value not in slot.chosen)
        slot.url = url
        slot.on_its_way.clear()
        drawn = False
    if not drawn:
        slot.laid_over = held if slot.laid_over is None else slot.laid_over
        st.session_state[widget] = list(slot.chosen) if many else next(iter(slot.chosen), default)
    return slot.unknown


def choose(param: str, widget: str, values: tuple[str, ...], *, many: bool = False, default: str | None = None) -> None:
    """Lay what a click chooses into a widget, for good: a button's callback, of a parameter that `take` prepares.

    A value that a callback writes into the widget is sent by the callback's own run alone. Where that is interrupted,
    or the browser asks for another run before it has drawn the value, the widget would go back to its older one.
    """
    slot = _slot(param, widget)
    slot.default = default
    slot.replaced = slot.laid_over = _values(st.session_state.get(widget), default)
    slot.chosen, slot.unknown = tuple(value for value in values if value != default), ()
    slot.url = tuple(st.query_params.get_all(param))
    st.session_state[widget] = list(values) if many else next(iter(values), default)


@contextmanager
def written_at_once() -> Iterator[None]:
    """Send what the block writes into the URL as one URL, with all that is chosen on the page.

    The browser may ask for the next run with any URL that it was sent. A run may itself have been started with an older
    URL: one that had its old values beside a new one would come back and look like a link to them.
    """
    token = _WRITTEN.set({})
    try:
        yield
        _send(_WRITTEN.get() or {})
    finally:
        _WRITTEN.reset(token)


def turn_page(page: str) -> None:
    """Forget how parameters stood in the URL of another page."""
    if st.session_state.get(_PAGE) != page:
        st.session_state[_PAGE] = page
        st.session_state.pop(_SLOTS, None)


def keep(widgets: Mapping[str, str]) -> None:
    """Write what widgets hold, by parameter, into the URL; `take` has prepared them and they were drawn since.

    Parameters of others stay; those that Streamlit binds cannot be written.
    """
    for param, widget in widgets.items():
        slot = _slot(param, widget)
        slot.chosen, slot.laid_over = _values(st.session_state.get(widget), slot.default), None
        url = (*slot.chosen, *slot.unknown)
        if url != slot.url:
            slot.on_its_way.add(slot.url)
            slot.on_its_way.discard(url)
            slot.url = url
    _write({param: _slot(param, widget).url for param, widget in widgets.items()})


def forget(*params: str) -> None:
    """Remove parameters from the URL and forget their widgets, so that nothing writes them again."""
    slots: dict[tuple[str, str], _Slot] = st.session_state.get(_SLOTS, {})
    for place in [each for each in slots if each[0] in params]:
        del slots[place]
    for param in params:
        if param in st.query_params:
            del st.query_params[param]


def write(param: str, value: str | None) -> None:
    """Write one parameter of the URL, or leave it out, where it is not so already."""
    _write({param: () if value is None else (value,)})


def draw_unknown(unknown: Mapping[str, tuple[str, ...]], widgets: Mapping[str, str]) -> None:
    """Say what a link names that is not here; `unknown` is what `take` returned by parameter, `widgets` their keys."""
    named = {param: values for param, values in unknown.items() if values}
    if not named:
        return
    text = "; ".join(f"{param} {_some(values)}" for param, values in named.items())
    with st.container(horizontal=True, vertical_alignment="center", key="unknown_link"):
        st.warning(
            formatting.escaped(f"The link names unknown values, which were ignored: {text}."),
            icon=":material/link_off:",
        )
        st.button(
            "Remove from the link",
            key="forget_unknown",
            on_click=_forget,
            args=([(param, widgets[param]) for param in named],),
        )


def _column(label: str, key: str, width: int, to: tuple[str, str]) -> Any:
    return st.column_config.ButtonColumn(
        label,
        width=width,
        help="A click opens its page in this tab.",
        type="tertiary",
        alignment="left",
        key=key,
        on_click=_open,
        args=(key, *to),
    )


def _offer(key: str, what: str, choices: Mapping[str, str], to: tuple[str, str]) -> None:
    st.selectbox(
        what,
        list(choices),
        key=key,
        index=None,
        format_func=lambda each: choices.get(each, each),
        placeholder=f"{what.lower()}: type, then Enter",
        label_visibility="collapsed",
        width=360,
        on_change=_open_chosen,
        args=(key, *to),
    )


def _open(key: str, page: str, param: str) -> None:
    """Open the clicked game by the text of its cell: its row may hold another one by now."""
    _switch(page, {param: st.session_state[key]["label"]})


def _open_named(key: str, table: str) -> None:
    """Open what was clicked by its text; a text that nobody has drawn opens nothing."""
    known: Mapping[str, str] = st.session_state.get(f"{table}_named", {})
    game_key = known.get(st.session_state[key]["label"])
    if game_key is not None:
        _switch("game", {"game": game_key})


def _open_chosen(key: str, page: str, param: str) -> None:
    chosen, st.session_state[key] = st.session_state[key], None
    if chosen is not None:
        _switch(page, {param: chosen})


def _switch(page: str, query: Mapping[str, str | tuple[str, ...]]) -> None:
    """Open a page with its parameters and those that go along.

    Streamlit writes the new parameters beside the old page's path first, and Back leads there: with its filters in the
    URL, Fleet looks as it was left. The page Game leaves them as they are.
    """
    along = (*_CARRIED, *FILTERS) if page == "game" and st.session_state.get(_PAGE) == "" else _CARRIED
    kept = {name: st.query_params.get_all(name) for name in along if name in st.query_params and name not in query}
    st.switch_page(f"views/{page}.py", query_params={**query, **kept})


def _some(values: tuple[str, ...]) -> str:
    return join_limited(values, _MAX_SAID, lambda value: f"“{formatting.shown(value, _LONGEST)}”")


def _forget(places: list[tuple[str, str]]) -> None:
    for param, widget in places:
        _slot(param, widget).unknown = ()


def _write(wanted: Mapping[str, tuple[str, ...]]) -> None:
    """Write parameters at the end of the run; at once where no run gathers them."""
    written = _WRITTEN.get()
    if written is None:
        _send(wanted)
    else:
        written.update(wanted)


def _send(written: Mapping[str, tuple[str, ...]]) -> None:
    """Send one URL; values of the page's other parts that the run's URL has from before are replaced, too."""
    slots: Mapping[tuple[str, str], _Slot] = st.session_state.get(_SLOTS, {})
    newer = {
        param: slot.url
        for (param, _), slot in slots.items()
        if tuple(st.query_params.get_all(param)) in slot.on_its_way
    }
    wanted = {**newer, **written}
    changed = {
        param: list(values) for param, values in wanted.items() if list(values) != st.query_params.get_all(param)
    }
    if changed:
        st.query_params.update(changed)  # one message; a parameter without values leaves the URL


def _slot(param: str, widget: str) -> _Slot:
    slots: dict[tuple[str, str], _Slot] = st.session_state.setdefault(_SLOTS, {})
    return slots.setdefault((param, widget), _Slot())


def _values(held: object, default: str | None) -> tuple[str, ...]:
    if held in (None, "", default):
        return ()
    return tuple(str(each) for each in held) if isinstance(held, (list, tuple)) else (str(held),)
