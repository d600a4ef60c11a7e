"""All artifacts of a run as one tar archive, made while it is sent."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

from deborgen_coordinator.operations import blobs
from deborgen_coordinator.operations.attempts import artifacts
from deborgen_coordinator.operations.context import Context
from deborgen_shared.messages import RunArtifact

#: Ask for this many artifacts at once.
AT_ONCE = 500
BLOCK = 512


def of_run(ctx: Context, run: int) -> Iterator[bytes]:
    """The archive, piece by piece. Each artifact is at JOB/PATH, such as 42.7/plots/loss.png."""
    cursor: str | None = None
    while True:
        page = artifacts.of_run(ctx, run, cursor, AT_ONCE)
        for each in page.items:
            yield from _member(ctx, each)
        cursor = page.next
        if cursor is None:
            break
    yield bytes(2 * BLOCK)


def _member(ctx: Context, artifact: RunArtifact) -> Iterator[bytes]:
    entry = tarfile.TarInfo(f"{artifact.job}/{artifact.path}")
    entry.size, entry.mode = artifact.size, 0o644
    yield entry.tobuf(tarfile.PAX_FORMAT)
    yield from blobs.open_range(ctx, artifact.sha256, 0, artifact.size)
    if artifact.size % BLOCK:
        yield bytes(BLOCK - artifact.size % BLOCK)
