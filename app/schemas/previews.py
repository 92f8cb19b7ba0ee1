"""Previews of the Schemas page's acts, which take effect at once: role, reason and audit entry are the gate's."""

from typing import Final

from app.state.previews import planned
from pipeline.api import schema_acts

preview_again: Final = planned(schema_acts.preview_again)
preview_registration: Final = planned(schema_acts.preview_registration)
preview_approval: Final = planned(schema_acts.preview_approval)
preview_rejection: Final = planned(schema_acts.preview_rejection)
preview_trust: Final = planned(schema_acts.preview_trust)
