"""Previews of the Games page's acts: role, reason and audit entry are the gate's."""

from typing import Final

from app.state.previews import planned
from pipeline.api import game_acts

preview_approval: Final = planned(game_acts.preview_approval)
preview_rejection: Final = planned(game_acts.preview_rejection)
preview_proposal: Final = planned(game_acts.preview_proposal)
preview_rules: Final = planned(game_acts.preview_rules)
