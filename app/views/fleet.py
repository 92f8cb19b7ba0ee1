"""The home page: how the fleet is in one sentence, over time, by cause, by group and game by game.

The upper part is drawn at each refresh, the grid and the table at most every 15 s, as they are large.
"""

from app.components import header
from app.fleet import glance, listing

header.keep_drawing(glance.draw)
header.keep_drawing(listing.draw, listing.AT_LEAST_SECONDS)
