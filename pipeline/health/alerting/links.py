"""The link of an alert to its runbook, filled with what the alert is about."""

import re
from typing import Final

from pipeline.health.verdicts.alert import Alert

SUBJECTS: Final = {
    "game": "game",
    "cluster_group": "group",
    "edge": "edge",
    "derived": "derived",
    "registry": "registry",
}
"""Labels that say what an alert is about, and the parameters of the page of runbooks that they fill."""


def runbook_url(alert: Alert, address: str) -> str:
    """Return the address of an alert's runbook, with a template for each label of `SUBJECTS` that its texts name."""
    texts = f"{alert.summary} {alert.description} {alert.dashboard}"
    named = set(re.findall(r"\$labels\.(\w+)", texts))
    about = "&".join(f"{param}={{{{ $labels.{label} }}}}" for label, param in SUBJECTS.items() if label in named)
    return f"{address}{alert.runbook}{'?' if about else ''}{about}"
