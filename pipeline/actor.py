"""Who acts: the user of the operating system, by the process's uid. No variable of the environment counts."""

import os
import pwd

from pipeline.errors import Refused


def current_user() -> str:
    """Return the name of the user this process runs as, `uid:N` for one without an entry in the user database.

    Raises:
        Refused: the name is of a form that turnout keeps for what it does itself.
    """
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container that was given any uid
        return f"uid:{uid}"
    if not name.strip() or name.startswith("("):
        raise Refused(f"The user name {name!r} is reserved for turnout itself. Run this as another user.")
    return name
