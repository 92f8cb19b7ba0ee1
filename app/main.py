"""Entry of the dashboard: `python -m streamlit run app/main.py -- --env-dir DIR`; it only lists the pages."""

import streamlit as st

st.set_page_config(page_title="turnout", layout="wide", initial_sidebar_state="collapsed")
st.navigation(
    [
        st.Page("views/fleet.py", title="Fleet", default=True),
        st.Page("views/game.py", title="Game", visibility="hidden"),
        st.Page("views/groups.py", title="Groups"),
        st.Page("views/repairs.py", title="Repairs"),
        st.Page("views/access.py", title="Access"),
        st.Page("views/operations.py", title="Operations"),
        st.Page("views/audit.py", title="Audit"),
    ],
    position="hidden",
).run()
