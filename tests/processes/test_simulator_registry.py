"""The simulator's schemas in a real registry that checks their compatibility."""

import itertools
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.demo.framings.confluent import ConfluentFraming
from pipeline.demo.registry import Registry
from pipeline.demo.samples.avro import AvroSample
from pipeline.demo.samples.sample import FAMILIES, VERSIONS
from pipeline.demo.samples.supported import SAMPLES, sample, version_of_type


def test_a_registry_has_each_event_type_under_a_subject_of_its_own(tmp_path: Path) -> None:
    """Further types are frames of schemas of their own; their payloads are those of the sample."""
    with Registry.start(tmp_path / "registry") as registry:
        framing = ConfluentFraming(registry.url, "events")
        with framing.client:
            for name in SAMPLES:
                made = sample(name, "puzzle", version_of_type(1, 2), 1)
                framing.introduce(1, made)
                framed = framing.framed("", 7, made, made.event(0, 1, 1))
                assert framed.body == made.encode(made.event(0, 1, 1))
                assert framing.client.get_versions(f"events-{made.message}") == [1]


def test_a_strict_registry_takes_each_version_after_all_before_it(tmp_path: Path) -> None:
    """The samples evolve as BACKWARD_TRANSITIVE wants it; a change that it does not take is one sentence."""
    with Registry.start(tmp_path / "registry") as registry:
        framing = ConfluentFraming(registry.url, "events")
        with framing.client:
            framing.client.set_compatibility(level="BACKWARD_TRANSITIVE")
            ids = []
            for name, kin, version in itertools.product(SAMPLES, FAMILIES, range(1, VERSIONS + 1)):
                made = sample(name, kin, version, 1)
                framing.introduce(version, made)
                ids.append(int.from_bytes(framing.framed("", version, made, made.event(0, 1, 1)).head[1:5], "big"))
            assert ids == sorted(set(ids))  # turnout asks for a game's schemas in the order of their ids
            for package in ("puzzle.v1", "puzzle.json", "puzzle"):
                assert framing.client.get_versions(f"events-samples.{package}.LevelPlayed") == [1, 2, 3, 4, 5, 6]
            odd = AvroSample("puzzle", 6, 1)
            odd.text = odd.text.replace('"default": ""', '"doc": "rows of older versions lack it"')
            with pytest.raises(Refused, match=r"did not register samples\.puzzle\.LevelPlayed.*Allow the change"):
                framing.introduce(6, odd)
