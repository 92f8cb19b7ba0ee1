"""Numbers by slots of time for the pages: one reader per environment, shared by all viewers. It draws nothing."""

import time

import pyarrow as pa
import streamlit as st

from app.state.minutes import RANGES, open_reader, settled_seconds
from app.state.services import BY_STORE, Environment
from listeners.minutes.reader import SeriesReader
from listeners.series import Series
from pipeline.base.errors import Refused, first_line
from pipeline.lake.delta.errors import DeltaError


@st.cache_resource(ttl=3, max_entries=8, show_spinner=False, hash_funcs=BY_STORE)
def series(environment: Environment, range_seconds: int) -> Series:
    """Read the closed minutes of a range (a key of RANGES), at most 3 s old; before the first report it has no games.

    All viewers share its arrays, which are read-only: a copy for each would take longer than the reading.

    Raises:
        Refused: the minute tables cannot be read.
    """
    slot_seconds, slots = RANGES[range_seconds]
    until = time.time() - settled_seconds(environment.settings.metrics)
    try:
        return _reader(environment).read(slot_seconds, slots, until, time.monotonic())
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise Refused(
            f"The minute tables cannot be read: {first_line(error)}. Streams are not affected. "
            f"Check {environment.paths.metrics}."
        ) from error


@st.cache_resource(max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def _reader(environment: Environment) -> SeriesReader:
    return open_reader(environment.paths)
