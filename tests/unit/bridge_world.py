"""A small fleet as drivers leave it: telemetry of an ingest and a group, their rows in the tables, and the store."""

import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert, update

from listeners.events import Progressed
from listeners.join import Pass
from listeners.sample import CHUNK, LATENCY_EDGES_SECONDS, GameResult, GroupSample, Lane, PassResult, StreamState
from pipeline.settings import Metrics, Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store
from pipeline.store.processes.drivers import heartbeat, record_commit, start_driver, write_streams
from pipeline.telemetry import Telemetry
from tests.unit.test_listeners_prometheus_texts import HOSTILE

Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]
COUNTS: Final = (1, 2, *(0,) * (len(LATENCY_EDGES_SECONDS) - 2), 4)
PATIENCE_SECONDS: Final = 20.0
