"""The configuration of Alertmanager: who gets what, what is one message, and which alert silences which."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeline.settings.alerts import AlertSettings

_NOBODY: Final = "nobody"
_LATE: Final = 'alertname=~"TurnoutLatencyOverObjective|TurnoutFreshness.*"'


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While an alert of the sources fires, those of the targets with the same labels are not sent.

    A label that both lack is the same, so each source is required to have what must be equal.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    equal: Sequence[str] = ()


INHIBITIONS: Final = (
    # the games of a dead group stand still with it
    Inhibition(['alertname="TurnoutGroupDown"', 'cluster_group!=""'], ['game!=""'], ["cluster_group"]),
    # rows that reach bronze late are late for every game
    Inhibition(['alertname=~"TurnoutSourceBacklog|TurnoutIngestStalled"'], [_LATE]),
    # a stream that does not run is late
    Inhibition(['alertname=~"TurnoutStreamDown|TurnoutStreamStalled"'], [_LATE], ["game"]),
    # the faster burn says more
    Inhibition(
        ['alertname="TurnoutFreshnessBurnFast"'],
        ['alertname=~"TurnoutLatencyOverObjective|TurnoutFreshnessBurnSlow|TurnoutFreshnessBudgetDrip"'],
        ["game"],
    ),
    Inhibition(['alertname="TurnoutFreshnessBurnSlow"'], ['alertname="TurnoutFreshnessBudgetDrip"'], ["game"]),
)


def alertmanager_config(alerts: AlertSettings) -> str:
    """Return the configuration (YAML); it has no secret but what the addresses of the webhooks have."""
    receivers = {"page": alerts.page_webhook, "ticket": alerts.ticket_webhook, "watchdog": alerts.watchdog_webhook}

    def receiver(name: str) -> str:
        return name if receivers[name] else _NOBODY

    config = {
        "route": {
            "receiver": receiver("ticket"),
            "group_by": ["alertname", "cluster_group"],  # 300 games of a group are one message
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "4h",
            "routes": [
                {"matchers": ['severity="page"'], "receiver": receiver("page")},
                {"matchers": ['severity="ticket"'], "receiver": receiver("ticket"), "repeat_interval": "1d"},
                {
                    "matchers": ['severity="none"'],
                    "receiver": receiver("watchdog"),
                    "group_wait": "1s",
                    "group_interval": "1m",
                    "repeat_interval": "1m",
                },
            ],
        },
        "inhibit_rules": [
            {
                "source_matchers": list(each.sources),
                "target_matchers": list(each.targets),
                **({"equal": list(each.equal)} if each.equal else {}),
            }
            for each in INHIBITIONS
        ],
        "receivers": [
            {"name": _NOBODY},
            *(
                {"name": name, "webhook_configs": [_webhook(url, alerts.token_file)]}
                for name, url in receivers.items()
                if url
            ),
        ],
    }
    return "\n".join(["# Made by `turnout alerts write`; do not edit.", *_lines(config), ""])


def _webhook(url: str, token_file: str) -> dict[str, Any]:
    with_token = {"http_config": {"authorization": {"credentials_file": token_file}}} if token_file else {}
    return {"url": url, "send_resolved": True, **with_token}


def _lines(node: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield YAML of mappings and lists, whose leaves are JSON, which is YAML."""
    for name, value in node.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield f"{indent}{name}:"
            for each in value:
                first, *others = _lines(each, indent + "    ")
                yield f"{indent}  - {first.strip()}"
                yield from others
        else:
            yield f"{indent}{name}: {json.dumps(value)}"
