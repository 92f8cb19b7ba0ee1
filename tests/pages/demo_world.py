"""A demo of whose faults a page knows."""

import time

from pipeline.demo.breaking.channel import Active


class Fake:
    """A demo that records requests."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.active: tuple[Active, ...] = ()

    def begin(self, fault: str, target: str) -> str:
        self.done.append(f"{fault} {target}")
        self.active = (Active(fault, target, time.time(), time.time() + 900, "*did* it"),)
        return f"did {fault}"

    def undo(self, fault: str, target: str) -> str:
        self.done.append(f"undo {fault} {target}")
        self.active = ()
        return f"ended {fault}"

    def look(self) -> None: ...

    def end_all(self) -> None: ...
