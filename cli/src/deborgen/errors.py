"""The errors that a user may see: one class per kind, each with its exit code."""

from __future__ import annotations

from typing import Any, ClassVar

from deborgen_shared.errors import Code

#: The exit codes of all commands. The documentation is compared with this table.
EXIT_CODES: dict[int, str] = {
    0: "success; with --wait, --watch and similar, the jobs succeeded",
    1: "an unexpected error",
    2: "wrong usage of the command",
    3: "the job file is invalid",
    4: "not allowed: no token, a wrong token, or a role without this permission",
    5: "the coordinator cannot be reached, or cannot answer right now",
    6: "not found",
    7: "not possible in the current state",
    10: "the job failed, or every finished job of the run failed",
    11: "canceled",
    14: "some of the run's jobs failed",
    124: "the wait timed out",
    130: "interrupted; the jobs continue",
    141: "the reader of the output closed the pipe",
}


class DeborgenError(Exception):
    """An expected failure: a sentence and what to do about it. It is never shown as a traceback."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "", *, code: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
        self.details = details or {}

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class WrongUsage(DeborgenError):
    """A name, address, parameter or column that is not valid."""

    exit_code = 2


class InvalidJob(DeborgenError):
    """The job file is invalid. `details["report"]` shows every problem, where it is, and what to write."""

    exit_code = 3


class NotAllowed(DeborgenError):
    exit_code = 4


class Unreachable(DeborgenError):
    exit_code = 5


class NotFound(DeborgenError):
    exit_code = 6


class NotPossible(DeborgenError):
    """The current state of a run, a worker or this machine does not allow the request."""

    exit_code = 7


class JobsFailed(DeborgenError):
    exit_code = 10


class JobsCanceled(DeborgenError):
    exit_code = 11


class SomeJobsFailed(DeborgenError):
    exit_code = 14


class WaitRanOut(DeborgenError):
    exit_code = 124


_BY_STATUS: dict[int, type[DeborgenError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: NotPossible,
    422: InvalidJob,
    429: Unreachable,
    502: Unreachable,
    503: Unreachable,
    504: Unreachable,
}

#: Hints that replace those of the API, by error code: the API's hints name routes, these name commands.
HINTS: dict[str, str] = {
    Code.UNAUTHENTICATED: "deborgen login URL stores a token for this coordinator",
    Code.NOT_FOUND: "deborgen list shows the runs, deborgen workers the machines",
}


def from_answer(status: int, code: str, message: str, hint: str, details: dict[str, Any]) -> DeborgenError:
    """The refusal of a coordinator, as the error a person sees."""
    kind = _BY_STATUS.get(status, DeborgenError)
    message = message or f"the coordinator answered {status}"
    return kind(message, HINTS.get(code, hint), code=code, details=details)
