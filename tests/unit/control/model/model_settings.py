"""Settings of the model of control."""

import hypothesis
from hypothesis import Phase

_STEPS = 30  # of each


def settings(
    sequences: int, steps: int = _STEPS, *, shrinks: bool = True, derandomize: bool = True
) -> hypothesis.settings:
    phases = (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,)
    return hypothesis.settings(
        max_examples=sequences, stateful_step_count=steps, derandomize=derandomize, database=None, deadline=None,
        phases=phases, suppress_health_check=list(hypothesis.HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
