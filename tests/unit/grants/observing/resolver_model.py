"""A slow model of who may do what, and the comparison with it."""

from random import Random

from grants.observing.resolver import Resolver
from tests.unit.grants.grants_world import (
    everybody,
    members_closure,
    random_catalog,
    truth,
)


def require_what_a_slow_model_says(seeds: range, *, emulated: bool) -> None:
    """Compare in the worlds of these seeds; `tests/soak` has more of them."""
    seen = {True: 0, False: 0, None: 0}
    for seed in seeds:
        observed = random_catalog(Random(seed), emulated=emulated)
        resolver = Resolver(observed)
        for who in everybody(observed):
            reading = resolver.reading(who)
            selves = members_closure(observed, who)
            assert selves == set(resolver.closure(who)), (seed, who)
            for key in observed.tables:
                expected, verdict = truth(observed, who, selves, key), resolver.verdict(who, key)
                assert (expected.reads, expected.could) == (verdict.reads, verdict.could_grant_itself), (seed, who, key)
                assert expected.reads is reading.of(key), (seed, who, key)
                assert (key in reading.could) == (verdict.could_grant_itself is True and expected.reads is False)
                seen[expected.reads] += 1
    assert min(seen.values()) > len(seeds) / 5  # the generator makes enough of each
