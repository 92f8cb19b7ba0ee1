"""The home page: how the fleet is in one sentence, over time, by cause, by group and game by game.

Both parts are drawn at each refresh, of one reading of the fleet; a filter draws the second one alone.
"""

from app.components import header
from app.fleet import glance, listing

header.keep_drawing(glance.draw)
header.keep_drawing(listing.draw)
