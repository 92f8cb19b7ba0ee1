from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pipeline.data.contracts.formats.json import long_numbers
from pipeline.data.contracts.formats.json.glance import rows_with

LONG = (
    "0.123456789012345678", "-0.000123456789012345678", "1.00000000000000000", "12345678901234567.0", "9.9e-100",
    "1234567890.12345678", "123456789012345678e-3", "123456789012345678901234567890.5", "1E-0100", f"0.{'0' * 200}1",
    f"0.{'0' * 400}", "123456789012345678E2", "5e-324",
)  # fmt: skip
SHORT = (
    "0", "0.5", "229.13238569298421", "0.043276706790505337", "1234567890123456.7", "1e-99", "123456789012345678",
    '"e-"', '"1/2/3/4/5/6/7/8/9/10/11"', '"00000000000000000000000000000000000000000000000000"', "-0.0", "1e300",
    '"free-form 0.5e-3"', '"2026-10-02T22:16:14.294952+00:00"', "[1.5,0,0,0,0,0,0,0,0,0]", "0.0000000000000000000001",
)  # fmt: skip


@pytest.mark.parametrize("text", LONG)
def test_a_long_number_is_found_wherever_it_stands(text: str) -> None:
    """A double never rounds a number in silence: each document with a long one is decided alone."""
    for before, (start, end) in enumerate((('{"a":', "}"), ('{"a":[', "]}"), ('{"a": ', " }"))):
        documents = ["{}"] * before + [f"{start}{text}{end}", '{"a":1.5}']
        assert long_numbers.with_long_numbers(pa.array(documents)).tolist() == [before]


@pytest.mark.parametrize("seed", range(20))
def test_the_quick_look_misses_no_document(seed: int) -> None:
    """The look at bytes misses no document that the expression finds, in pieces of any size and in a slice."""
    chance = Random(seed)
    documents = [
        f'{{"a":[{",".join(chance.choices(LONG if chance.random() < 0.3 else SHORT, k=chance.randrange(1, 5)))}]}}'
        for _ in range(50)
    ]
    texts = pa.array(["0" * 30, *documents, "x"]).slice(1, 50)
    matching = pc.match_substring_regex(texts, long_numbers.EXPRESSION).to_numpy(zero_copy_only=False)
    expected = np.flatnonzero(matching).tolist()
    assert long_numbers.with_long_numbers(texts).tolist() == expected
    suspects = rows_with(texts, long_numbers.suspects, chance.choice((1, 7, 64, 1000)))
    assert set(expected) <= set(suspects.tolist())


def test_the_expression_reads_few_documents() -> None:
    """The look at bytes is worth its time, as numbers of usual length do not make a document suspect."""
    chance = Random(1)
    texts = pa.array([f'{{"x":{chance.random()},"y":{chance.random() * 300}}}' for _ in range(2000)])
    assert len(rows_with(texts, long_numbers.suspects)) < 20
