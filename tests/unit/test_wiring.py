"""How a driver's end is told."""

import threading
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import select

from pipeline.errors import Refused
from pipeline.settings import load
from pipeline.store.drivers import start_driver
from pipeline.store.engine import open_store
from pipeline.store.tables import drivers
from pipeline.wiring import _Duty, _refusal_told


@pytest.mark.parametrize(("kind", "name"), [("ingest", "main"), ("group", "a")])
def test_a_driver_that_refuses_to_go_on_says_so_where_the_dashboard_looks(
    kind: Literal["ingest", "group"], name: str, tmp_path: Path
) -> None:
    """A driver of either kind that ends with a sentence leaves it in the store: it is failed, not silent."""
    engine = open_store(*load(tmp_path, {}))
    start_driver(engine, kind, name, None)
    duty = _Duty(kind, name, engine, threading.Event(), None)
    with pytest.raises(Refused, match="another bronze"), _refusal_told(duty):
        raise Refused("This is another bronze.")
    with engine.connect() as connection:
        told: Any = connection.execute(select(drivers.c.state, drivers.c.error)).one()
    assert tuple(told) == ("failed", "This is another bronze.")
    engine.dispose()
