"""The name of the format of documents that nobody declared: lists compare it without a library of formats."""

from typing import Final

UNDECLARED: Final = "json-superset"
"""The format of supersets; nobody gives one."""
