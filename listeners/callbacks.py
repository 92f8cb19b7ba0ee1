"""Starts the server by which this process's JVM calls back into Python, so that it obeys that JVM alone.

`foreachBatch` and the listener need it. As PySpark starts it, it obeys any user of the machine: py4j's Java side drops
the token when it learns the server's port, so PySpark gives the server none.
"""

import secrets
from typing import Any


def start_callbacks(gateway: Any) -> None:
    """Start the callback server with a token that only this process and its JVM know; a running server stays.

    PySpark's own call then finds the server started.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    if vars(gateway).get("_callback_server") is not None:
        return
    # Found before the server begins: without it PySpark's own start serves, which needs no token.
    held = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    held.setAccessible(True)
    token = secrets.token_urlsafe(32)
    gateway.callback_server_parameters.auth_token = token
    start: Any = ensure_callback_server_started
    start(gateway)
    held.set(gateway.java_gateway_server.getCallbackClient(), token)
