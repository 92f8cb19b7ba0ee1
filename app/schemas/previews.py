"""Previews of the Schemas page's acts; all but choices about variations and declarations take effect at once.

Role, reason and audit entry are the gate's.
"""

from typing import Final

from app.state.previews import planned
from pipeline.api import schema_acts, variation_acts

preview_again: Final = planned(schema_acts.preview_again)
preview_registration: Final = planned(schema_acts.preview_registration)
preview_approval: Final = planned(schema_acts.preview_approval)
preview_rejection: Final = planned(schema_acts.preview_rejection)
preview_trust: Final = planned(schema_acts.preview_trust)
preview_choice: Final = planned(variation_acts.preview_choice)
preview_merge: Final = planned(variation_acts.preview_merge)
preview_declaration: Final = planned(variation_acts.preview_declaration)
