"""What a worker does while the object store of its pool does not answer."""

from __future__ import annotations

from pathlib import Path

from deborgen_shared.client.transport import NoAnswer, Trouble
from deborgen_shared.messages import MissingBlob
from deborgen_worker.attempts import Exit
from support.worker_in_steps import SteppedWorker, running


def with_one_artifact(folder: Path) -> SteppedWorker:
    """A worker whose attempt has ended and left an artifact; the object store does not answer."""
    world = SteppedWorker(folder, running)

    def missing(digests: list[str]) -> dict[str, MissingBlob]:
        return {sha256: MissingBlob(sha256=sha256, url="", direct=True) for sha256 in digests}

    def upload(path: Path, sha256: str, size: int, place: MissingBlob | None = None) -> None:
        raise NoAnswer("the object store does not answer", trouble=Trouble.STORE)

    world.coordinator.missing = missing  # type: ignore[method-assign]
    world.coordinator.upload = upload  # type: ignore[method-assign]
    world.queue("1.1/1", artifacts=[{"path": "out"}], resources={"cpus": 1})
    world.take()
    (world.spool.folder("1.1/1") / "work" / "out").write_text("made")
    world.runner.end("1.1/1", Exit(code=0, seconds=1.0))
    world.deliver()
    return world


def test_fault_80_an_attempt_whose_artifacts_cannot_be_uploaded_ends_as_an_error(tmp_path: Path) -> None:
    """Seen to fail when a worker tries for ever to reach the object store."""
    world = with_one_artifact(tmp_path)
    for _ in range(29):
        world.now += 30
        world.deliver()
    assert world.outcomes == {}, "it still tries"
    for _ in range(3):
        world.now += 30
        world.deliver()
    assert world.outcomes == {"1.1/1": "error"}


def test_an_upload_that_works_again_in_time_is_a_success(tmp_path: Path) -> None:
    world = with_one_artifact(tmp_path)
    world.now += 300
    world.deliver()
    assert world.outcomes == {}
    world.coordinator.upload = lambda path, sha256, size, place=None: None  # type: ignore[method-assign]
    world.now += 60
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}
