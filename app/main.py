"""Entry of the dashboard, which `app/server.py` serves: it lists the pages, for people who are known."""

import streamlit as st

from app.state import breaking, identity
from pipeline.errors import Refused

st.set_page_config(page_title="turnout", layout="wide", initial_sidebar_state="collapsed")
try:
    identity.person()
except Refused as refused:
    st.text(str(refused))
    st.stop()
st.navigation(
    [
        st.Page("views/fleet.py", title="Fleet", default=True),
        st.Page("views/game.py", title="Game", visibility="hidden"),
        st.Page("views/groups.py", title="Groups"),
        st.Page("views/schemas.py", title="Schemas"),
        st.Page("views/repairs.py", title="Repairs"),
        st.Page("views/access.py", title="Access"),
        st.Page("views/operations.py", title="Operations"),
        st.Page("views/audit.py", title="Audit"),
        *([st.Page("views/break_it.py", title="Break it")] if breaking.is_offered() else []),
    ],
    position="hidden",
).run()
