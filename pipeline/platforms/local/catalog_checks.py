"""The catalog's word on the tables of games, for `turnout doctor`, `deploy plan` and a game's onboarding.

The package `grants` knows catalogs and registers its check as an extension, since imports go one way.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.base.errors import Refused
from pipeline.base.extensions import CHECKS, registered
from pipeline.settings.tree import Paths, Settings

Outcome = Literal["ok", "refused", "untried", "unknown"]
"""`refused`: the writer of the settings cannot write to that table. `untried`: it may, and nobody has seen it do so.
`unknown`: the catalog gave no answer, or does not show where the table lies."""

UNTRIED: Final = "./turnout try-managed CATALOG.SCHEMA"
"""The command that tries a managed table with the `spark` writer, in a workspace."""


@dataclass(frozen=True, slots=True)
class CatalogCheck:
    """One thing that the catalog says; `remedy` is empty where the check found no fault."""

    outcome: Outcome
    subject: str
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.subject} {self.detail}" + (f" {self.remedy}" if self.remedy else "")


def catalog_checks(
    settings: Settings,
    paths: Paths,
    keys: Collection[str],
    environ: Mapping[str, str] = os.environ,
) -> list[CatalogCheck]:
    """Return what the catalog of the settings says of the tables of these games (keys, lower case).

    Nothing where the catalog is the embedded one, which has external tables only. A catalog that does not answer is a
    check of its own with the outcome `unknown`.
    """
    if settings.access.catalog == "embedded" or not keys:
        return []
    return [each for check in registered(CHECKS) for each in check(settings, paths, keys, environ)]


def managed_refusals(
    settings: Settings, paths: Paths, keys: Collection[str], environ: Mapping[str, str] = os.environ
) -> list[str]:
    """Return why games cannot be written to by the settings' writer, one sentence for each table in the way."""
    return [str(each) for each in catalog_checks(settings, paths, keys, environ) if each.outcome == "refused"]


def require_writable(
    settings: Settings, paths: Paths, keys: Collection[str], environ: Mapping[str, str] = os.environ
) -> list[str]:
    """Return notes about the tables of games that are about to be onboarded: untried or unknown.

    Raises:
        Refused: the catalog has another table of that name, to which the settings' writer cannot write.
    """
    checks = catalog_checks(settings, paths, keys, environ)
    refused = [str(each) for each in checks if each.outcome == "refused"]
    if refused:
        raise Refused(" ".join(refused))
    return [str(each) for each in checks if each.outcome in {"untried", "unknown"}]
