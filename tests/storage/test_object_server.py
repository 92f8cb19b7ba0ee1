"""The S3 server of the demo, as it really runs."""

import os
from functools import partial
from pathlib import Path

import pytest

from pipeline.demo.object_server import ObjectServer
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.lake.storage.trial import trials

create = partial(Location.put_if_absent, drafted="draft_commit", published="publish_commit")


@pytest.mark.proves("G233")
def test_the_demos_server_is_fit_for_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: what the demo starts passes what `turnout doctor` tries, and its secret stands in no process list."""
    with ObjectServer.start(tmp_path, "key", "very-secret") as server:
        server.make_bucket("tables")
        for name, value in {"ENDPOINT_URL": server.address, "ACCESS_KEY_ID": "key"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
        root = located("s3://tables/prod")
        found = list(trials(root))
        assert [each.subject for each in found] == ["rights", "put if absent", "clock", "latency"]
        assert [each for each in found if each.remedy] == []
        assert list(root.files(deep=True)) == [], "the trial leaves nothing behind"
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (entry / "cmdline").exists():
                try:
                    assert b"very-secret" not in (entry / "cmdline").read_bytes()
                except ProcessLookupError:
                    continue  # it has ended meanwhile
        assert os.environ["AWS_SECRET_ACCESS_KEY"] == "very-secret"


def test_the_trial_of_a_store_that_is_away_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: an unreachable store is one sentence about rights with the place, and nothing else is tried."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    (found,) = trials(located("s3://nowhere/prod"))
    assert found.stops
    assert "s3://nowhere/prod" in found.detail
    assert found.remedy
