"""The actor of commands: the operating system's user, by the process's uid. Environment variables do not count."""

import os
import pwd

from pipeline.base.errors import Refused


def current_user() -> str:
    """Return the user name of this process, `uid:N` without an entry in the user database.

    Raises:
        Refused: the name is reserved for turnout itself.
    """
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container with an arbitrary uid
        return f"uid:{uid}"
    if not name.strip() or name.startswith("("):
        raise Refused(f"The user name {name!r} is reserved for turnout itself. Run this as another user.")
    return name
