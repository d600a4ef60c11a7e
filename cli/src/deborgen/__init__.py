"""deborgen from Python: `deborgen.Client()`. The command line is in `deborgen.cli`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deborgen.client import Client as Client
    from deborgen.results import Results as Results
    from deborgen.runs import Job as Job
    from deborgen.runs import Run as Run

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

_LAZY = {"Client": "deborgen.client", "Job": "deborgen.runs", "Results": "deborgen.results", "Run": "deborgen.runs"}


def __getattr__(name: str) -> Any:
    # The command `deborgen --help` imports this package, too, and must not pay for an HTTP client.
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'deborgen' has no attribute {name!r}")
