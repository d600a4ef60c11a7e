"""deborgen from Python: `deborgen.Client()`. The command line is in `deborgen.cli`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deborgen.client import Client, Job, Results, Run

from deborgen.errors import (
    DeborgenError,
    InvalidJob,
    JobsCanceled,
    JobsFailed,
    NotAllowed,
    NotFound,
    NotPossible,
    SomeJobsFailed,
    Unreachable,
    WaitRanOut,
)

__version__ = "0.1.0"

__all__ = [
    "Client",
    "DeborgenError",
    "InvalidJob",
    "Job",
    "JobsCanceled",
    "JobsFailed",
    "NotAllowed",
    "NotFound",
    "NotPossible",
    "Results",
    "Run",
    "SomeJobsFailed",
    "Unreachable",
    "WaitRanOut",
]


def __getattr__(name: str) -> Any:
    # `deborgen --help` imports this package too, and must not pay for an HTTP client.
    if name in ("Client", "Job", "Results", "Run"):
        from deborgen import client

        return getattr(client, name)
    raise AttributeError(f"module 'deborgen' has no attribute {name!r}")
