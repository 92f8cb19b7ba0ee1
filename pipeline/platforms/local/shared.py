"""Whether turnout runs from a checkout or from an installed wheel, and where the documents are that came with it."""

import sysconfig
from pathlib import Path
from typing import Final

from pipeline.base.errors import Refused

_ROOT: Final = Path(__file__).parents[3]


def checkout() -> Path | None:
    """Return the folder of the checkout that this code belongs to; None where a wheel was installed."""
    return _ROOT if (_ROOT / "pyproject.toml").is_file() else None


def require_checkout(reason: str) -> Path:
    """Return the folder of the checkout that this code belongs to.

    Raises:
        Refused: turnout runs from an installed wheel; it gives the reason, a clause such as "the build needs sources".
    """
    root = checkout()
    if root is None:
        raise Refused(f"This turnout is an installed wheel, and {reason}. Run ./turnout in a checkout instead.")
    return root


def launcher() -> str:
    """Return how a person starts turnout here."""
    return "./turnout" if checkout() else "turnout"


def documents(name: str) -> Path:
    """Return the folder of documents that pages and people read, such as `runbooks`: of the checkout or the wheel."""
    root = checkout()
    return root / "docs" / name if root else Path(sysconfig.get_path("data")) / "share" / "turnout" / name
