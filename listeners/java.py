"""Looks classes of Spark up by name: private ones move between versions, so each user has a way without them."""

from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError


def java_class(jvm: Any, *names: str) -> Any | None:
    """Return the first class that this Spark has of some names; None without any, and without a JVM within reach."""
    for name in names:
        try:
            found = getattr(jvm, name)
        except (AttributeError, Py4JError):
            continue
        if isinstance(found, JavaClass):
            return found
    return None
