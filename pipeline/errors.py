"""The two families of errors: `Refused` tells a person what to do, `Transient` may be tried again."""


class Refused(Exception):
    """A request, name or setting that cannot be accepted; the message says what and what to do."""


class Transient(Exception):
    """A failure outside of our control that may pass; the caller retries with a budget."""
