"""Entry of the dashboard, which `app/server.py` serves: it lists the pages, for people who are known."""

import streamlit as st

from app.components import links
from app.look import style
from app.look.logo import LOGO
from app.person import identity
from app.state import breaking
from pipeline.base.errors import Refused

_ABOUT = "turnout splits one topic into one Delta table per game, each row exactly once."

st.set_page_config(page_title="turnout", layout="wide", initial_sidebar_state="collapsed", menu_items={"About": _ABOUT})
try:
    identity.person()
except Refused as refused:
    st.text(str(refused))
    st.stop()
st.html(style.block())
st.logo(LOGO, size="medium")
page = st.navigation(
    [
        st.Page("views/fleet.py", title="Fleet", default=True),
        st.Page("views/game.py", title="Game", visibility="hidden"),
        st.Page("views/groups.py", title="Groups"),
        st.Page("views/games.py", title="Games"),
        st.Page("views/schemas.py", title="Schemas"),
        st.Page("views/repairs.py", title="Repairs"),
        st.Page("views/access.py", title="Access"),
        st.Page("views/operations.py", title="Operations"),
        st.Page("views/audit.py", title="Audit"),
        st.Page("views/books.py", title="Books"),
        *([st.Page("views/break_it.py", title="Break it")] if breaking.is_offered() else []),
    ],
    position="top",
)
links.turn_page(page.url_path)
page.run()
