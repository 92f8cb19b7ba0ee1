"""Applies a person's options to a cluster group, and words the difference: pure, for `group_proposals`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeline.base.errors import Refused
from pipeline.base.texts import cores
from pipeline.health.verdicts.placement.capacity import GroupLoad
from pipeline.store.backends import backend_kind
from pipeline.store.groups import Group


def apply_options(group: Group, options: Mapping[str, Any]) -> Group:
    """Return a group with options of `turnout groups create | set` laid over it; None changes nothing.

    Raises:
        Refused: a number of cores and no limit are both wanted.
    """
    chosen = {name: options[name] for name in ("backend", "priority") if options[name] is not None}
    if options["cores"] is not None or options["unlimited"]:
        if options["cores"] is not None and options["unlimited"]:
            raise Refused("--cores and --unlimited cannot both be true: give one of them.")
        chosen["capacity_cores"] = options["cores"]
    if options["spark_master"] is not None:
        chosen["spark_master"] = options["spark_master"] or None
    return replace(group, **chosen)


def render_changes(seen: Group | None, then: Group, own_master: str) -> list[str]:
    """Return what changes, "was → will be" in a line each; a group that is made (`seen` is None) has one line for each.

    `own_master` is what the setting spark.master says, which counts where a group has none of its own.
    """
    new = describe(then, own_master)
    if seen is None:
        return [f"{name}: {value}" for name, value in new.items()]
    old = describe(seen, own_master)
    return [f"{name}: {old[name]} → {value}" for name, value in new.items() if old[name] != value]


def render_capacity(limit: float | None) -> str:
    """Return how many cores a group may use as people read it: as it was set, with all its digits."""
    return "no limit" if limit is None else f"{limit:.12g} cores"


def describe(group: Group, own_master: str) -> dict[str, str]:
    """Return a group's settings in words, without its state, which operations change."""
    return {
        "driver started by": backend_kind(group.backend).title,
        "capacity": render_capacity(group.capacity_cores),
        "for games of priority": group.priority,
        "Spark master": f"the setting's, {own_master}" if group.spark_master is None else group.spark_master,
    }


def effects(seen: Group, then: Group, load: GroupLoad | None) -> list[str]:
    """Return what a change does to the group's driver and its games, a sentence each; none where it disturbs nobody.

    `load` is what its games take, None where nobody knows.
    """
    return [
        *_of_backend(seen, then),
        *_of_capacity(seen, then, load),
        *(
            ["The new Spark master counts from its driver's next start, also from one after a death."]
            if seen.spark_master != then.spark_master
            else []
        ),
    ]


def _of_backend(seen: Group, then: Group) -> list[str]:
    if seen.backend == then.backend:
        return []
    if not backend_kind(then.backend).starts:
        return ["The controller leaves its driver alone: a running driver goes on, and nobody here restarts it."]
    if then.desired == "stopped":
        return ["The controller takes it over and stops a running driver: the group is set to stopped."]
    return ["The controller takes it over: a driver that runs goes on, else one is started."]


def _of_capacity(seen: Group, then: Group, load: GroupLoad | None) -> list[str]:
    limit, before = then.capacity_cores, seen.capacity_cores
    if limit is None or limit == before:
        return []
    if before is not None and limit > before:
        return []
    if load is None:
        return ["Nobody knows what its games take: those that no longer fit are named when moves are proposed."]
    if load.cores <= limit:
        return []
    sentence = (
        f"Its {load.games} games take about {cores(load.cores)}, as estimated, which is more: it gets no game, and who "
        "must leave is named when moves are proposed. Nothing moves by itself."
    )
    return [sentence]
