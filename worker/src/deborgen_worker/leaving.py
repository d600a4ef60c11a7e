"""What a worker that leaves the pool takes along, and what it leaves on the machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deborgen_shared.jobfile.units import format_size
from deborgen_worker.runners.protocol import CannotStart


def farewell(runners: Iterable[Any], state: Path, token_file: str) -> str:
    """Remove the images that the worker has pulled, and say in words what was removed and what is left."""
    removed: list[str] = []
    for runner in runners:
        if hasattr(runner, "remove_images"):
            with contextlib.suppress(CannotStart, OSError):
                removed += runner.remove_images()
    words = f"removed {', '.join(removed)}; " if removed else ""
    size = sum(each.lstat().st_size for each in state.rglob("*") if not each.is_dir())
    left = f"left on this machine: {state} ({format_size(size)}: the history, the cache and logs)"
    return f"{words}{left}" + (f" and the token file {token_file}" if Path(token_file).exists() else "")
