"""The error that ends the worker, with the exit code for its owner's shell or service manager."""

from __future__ import annotations


class CannotRun(Exception):
    """The worker cannot start or continue. It prints the message and exits with the code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
