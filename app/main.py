"""Entry of the dashboard, which `app/server.py` serves: it lists the pages, for people who are known."""

import streamlit as st

from app.bar import bar
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
titles = {
    "fleet": "Fleet",
    "groups": "Groups",
    "games": "Games",
    "schemas": "Schemas",
    "repairs": "Repairs",
    "access": "Access",
    "operations": "Operations",
    "alerts": "Alerts",
    "audit": "Audit",
    "books": "Books",
    **({"break_it": "Break it"} if breaking.is_offered() else {}),
}
page = st.navigation(
    [
        *(st.Page(f"views/{name}.py", title=title, default=name == "fleet") for name, title in titles.items()),
        st.Page("views/game.py", title="Game", visibility="hidden"),
        st.Page("views/runbook.py", title="Runbook", visibility="hidden"),
    ],
    position="top",
)
bar.draw(titles)
links.turn_page(page.url_path)
page.run()
