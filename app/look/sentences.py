"""The sentence of a page as it is drawn: of a headline, with since when and what stands elsewhere in grey. Pure."""

from dataclasses import dataclass

from app import formatting
from app.look.tokens import Tone
from pipeline.base.texts import short_moment
from pipeline.health.headlines.pages import Headline


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, what stands beside it in grey, and how urgent it is."""

    text: str
    meta: str
    tone: Tone


def of_headline(said: Headline, now: float, *more: str) -> Sentence:
    """Return a headline as a sentence; `more` stands in grey behind its own clauses."""
    meta = joined(since_text(said.since, now), *said.notes, *more, elsewhere_text(said, now))
    return Sentence(said.text, meta, said.tone)


def since_text(since: float | None, now: float) -> str:
    """Return `since 15:38, 12 min`; nothing where the beginning is unknown."""
    return "" if since is None else f"since {short_moment(since, now)}, {formatting.age(now - since)}"


def joined(*texts: str) -> str:
    """Return the texts that stand in grey beside a sentence, as one."""
    return " · ".join(text for text in texts if text)


def elsewhere_text(said: Headline, now: float) -> str:
    """Return the worst that stands beside what a headline names; nothing where it names all of it."""
    if said.elsewhere is None:
        return ""
    since = "" if said.elsewhere.since is None else f" since {short_moment(said.elsewhere.since, now)}"
    recovers = ": recovering" if said.elsewhere.is_recovering else ""
    return f"elsewhere: {said.elsewhere.text}{recovers}{since}"
