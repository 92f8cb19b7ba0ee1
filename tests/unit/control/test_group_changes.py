"""What is wanted of a group laid over what was wanted: what changes, and whom it disturbs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.control import group_changes, group_proposals
from pipeline.control.group_changes import apply_options, effects, render_changes
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.placement.capacity import GroupLoad
from pipeline.settings.tree import load
from pipeline.store.groups import Group, create, read_groups

SEEN = Group("c", "local", capacity_cores=2.0, spark_master="local[4]")
NOTHING: dict[str, Any] = {"backend": None, "cores": None, "unlimited": False, "priority": None, "spark_master": None}
FULL = GroupLoad("c", games=7, cores=1.5)


@pytest.mark.parametrize(
    ("options", "then"),
    [
        ({}, SEEN),
        ({"cores": 3.0}, replace(SEEN, capacity_cores=3.0)),
        ({"unlimited": True}, replace(SEEN, capacity_cores=None)),
        ({"spark_master": ""}, replace(SEEN, spark_master=None)),
        ({"backend": "none", "priority": "low"}, replace(SEEN, backend="none", priority="low")),
    ],
)
def test_only_what_is_named_changes(options: dict[str, Any], then: Group) -> None:
    """An option that is not given leaves a group as it was; an empty Spark master means the setting's."""
    assert apply_options(SEEN, {**NOTHING, **options}) == then


def test_cores_and_no_limit_contradict_each_other() -> None:
    """Nobody guesses which of the two was meant."""
    with pytest.raises(Refused, match="--cores and --unlimited cannot both be true"):
        apply_options(SEEN, {**NOTHING, "cores": 1.0, "unlimited": True})


def test_a_change_says_what_was_and_what_will_be() -> None:
    """Each thing that differs has a line, and nothing else; a group that is made has a line for each thing."""
    then = replace(SEEN, capacity_cores=None, spark_master=None, version=9)
    assert render_changes(SEEN, then, "local[2]") == [
        "capacity: 2 cores → no limit",
        "Spark master: local[4] → the setting's, local[2]",
    ]
    assert render_changes(SEEN, replace(SEEN, version=2), "local[2]") == []
    assert render_changes(None, SEEN, "local[2]") == [
        "driver started by: the controller",
        "capacity: 2 cores",
        "for games of priority: normal",
        "Spark master: local[4]",
    ]


@pytest.mark.parametrize(
    ("seen", "changes", "load", "said"),
    [
        (SEEN, {"priority": "high"}, FULL, None),
        (SEEN, {"capacity_cores": None}, FULL, None),
        (SEEN, {"capacity_cores": 9.0}, FULL, None),
        (SEEN, {"capacity_cores": 1.5}, FULL, None),
        (SEEN, {"capacity_cores": 1.4}, FULL, "Its 7 games take about 1.5 cores, as estimated, which is more"),
        (SEEN, {"capacity_cores": 1.4}, None, "Nobody knows what its games take"),
        (replace(SEEN, capacity_cores=None), {"capacity_cores": 1.0}, FULL, "Its 7 games"),
        (SEEN, {"spark_master": None}, FULL, "counts from its driver's next start"),
        (SEEN, {"backend": "none"}, FULL, "nobody here restarts it"),
        (replace(SEEN, backend="none"), {"backend": "local"}, FULL, "a driver that runs goes on, else one is started"),
        (replace(SEEN, backend="none", desired="stopped"), {"backend": "local"}, FULL, "stops a running driver"),
    ],
)
def test_what_disturbs_somebody_is_said(
    seen: Group, changes: dict[str, Any], load: GroupLoad | None, said: str | None
) -> None:
    """A limit below what its games take, another Spark master and another who starts it are told of; else nothing."""
    found = effects(seen, replace(seen, **changes), load)
    assert len(found) == (said is not None)
    assert (said or "") in "".join(found)


def test_what_disturbs_only_by_now_is_shown_first(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preview may be hours old: what it did not show is not written without a reason."""
    settings, _ = load(tmp_path, {})
    seen = create(engine, Group("b"), current_user(), "", placing())
    proposal = group_proposals.change(settings, engine, seen, replace(seen, capacity_cores=0.5))
    assert proposal.effects == ()
    monkeypatch.setattr(group_changes, "effects", lambda *_: ["Its 2 games take 120 cores."])
    with pytest.raises(Refused, match="not shown"):
        group_proposals.write(settings, engine, proposal, current_user(), "")
    assert read_groups(engine)["b"].capacity_cores is None
