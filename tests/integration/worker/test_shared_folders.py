"""Jobs in a folder that a machine's owner shares: read-only unless both agree, in a container and as a process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from deborgen_worker.runners.landlock import holds_read_only
from support.podman import IMAGE
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]
KINDS = pytest.mark.parametrize("image", [None, IMAGE], ids=["process", "container"])
#: What a job may not do in a folder that it only reads.
CHANGES = (
    "! echo x > new; ! echo x >> known; ! rm known; ! mkdir folder; ! mv known other; ! ln known twin; "
    "! chmod 000 known; ! true > known"
)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    made = {}
    for name in ("datasets", "scratch"):
        made[name] = tmp_path / name
        (made[name] / "deep").mkdir(parents=True)
        (made[name] / "known").write_text("of the owner\n")
        (made[name] / "known").chmod(0o666)
        for each in (made[name], made[name] / "deep"):
            each.chmod(0o777)
    tmp_path.chmod(0o755)
    return made


def start(request: pytest.FixtureRequest, image: str | None, folders: dict[str, Path], label: str) -> None:
    make: Make = request.getfixturevalue("container_worker" if image else "new_worker")
    shared = f"datasets={folders['datasets']},scratch=path={folders['scratch']},write=true"
    make(shared=shared, labels=f"test={label}").start()


def requirements(image: str | None, label: str) -> dict[str, object]:
    return {"requires": {"test": label}, **({"image": image} if image else {})}


@KINDS
def test_a_shared_folder_is_only_read_unless_both_agree(
    pool: Pool, request: pytest.FixtureRequest, folders: dict[str, Path], image: str | None
) -> None:
    if image is None and not holds_read_only():
        pytest.skip("this kernel has no fence for plain processes")
    label = f"read-{bool(image)}"
    start(request, image, folders, label)
    script = (
        f"cat known; ls; ({CHANGES}) 2>/dev/null; "
        'echo 0.5 half > "$DEBORGEN_PROGRESS"; printf \'{"n": 1}\' > "$DEBORGEN_RESULT"; echo x > "$HOME/own"; '
        'echo "{\\"type\\": \\"seen\\"}" >> "$DEBORGEN_EVENTS"'
    )
    for name in ("datasets", "scratch"):  # the owner allows writing to the second one, but the job does not ask for it
        run = pool.submit(run=script, workspace={"shared": name}, **requirements(image, label))
        assert pool.until(run)["state"] == "succeeded", pool.log(run)
        assert pool.log(run) == b"of the owner\ndeep\nknown\n"
        assert pool.job(run)["result"] == {"n": 1}
        assert (folders[name] / "known").read_text() == "of the owner\n"
        assert sorted(each.name for each in folders[name].iterdir()) == ["deep", "known"]
    shown = pool.admin.get(f"/v1/runs/{run}").json()
    assert (shown["workspace_source"], shown["repo_url"]) == ("shared", None)


@KINDS
def test_what_a_job_writes_is_there_for_the_next_one(
    pool: Pool, request: pytest.FixtureRequest, folders: dict[str, Path], image: str | None
) -> None:
    label = f"write-{bool(image)}"
    start(request, image, folders, label)
    common = requirements(image, label)
    workspace = {"shared": "scratch", "write": True}
    steps = [
        {"id": "one", "run": "echo made > deep/made; echo kept > deep/kept", "artifacts": ["deep/made"]},
        {"id": "two", "run": 'cat deep/kept "$DEBORGEN_INPUTS/one/deep/made"; rm deep/kept', "needs": ["one"]},
    ]
    run = pool.submit(steps=steps, workspace=workspace, **common)
    assert pool.done(run)["state"] == "succeeded", (pool.log(f"{run}.1"), pool.log(f"{run}.2"))
    assert pool.log(f"{run}.2") == b"kept\nmade\n"
    assert sorted(each.name for each in (folders["scratch"] / "deep").iterdir()) == ["made"]


def test_files_are_put_into_a_shared_folder_and_never_through_a_link(
    pool: Pool, new_worker: Make, folders: dict[str, Path], tmp_path: Path
) -> None:
    new_worker(shared=f"scratch=path={folders['scratch']},write=true", labels="test=files").start()
    digest = _upload(pool, b"of the job")
    common = {"workspace": {"shared": "scratch", "write": True}, "requires": {"test": "files"}}
    files = [{"path": "a/b.txt", "sha256": digest, "size": 10}]
    run = pool.submit(run="cat a/b.txt", files=files, **common)
    assert pool.until(run)["state"] == "succeeded", pool.log(run)
    assert pool.log(run) == b"of the job"
    victim = tmp_path / "victim"
    victim.mkdir()
    (folders["scratch"] / "evil").symlink_to(victim)
    run = pool.submit(run="true", files=[{**files[0], "path": "evil/b.txt"}], **common)
    assert pool.until(run)["state"] == "failed"
    assert "the workspace cannot be prepared" in pool.job(run)["reason"]
    assert list(victim.iterdir()) == []


def _upload(pool: Pool, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    assert pool.admin.put(f"/v1/blobs/{digest}", data=content).status_code in (200, 201)
    return digest


def test_only_a_worker_that_shares_the_folder_gets_the_job(
    pool: Pool, new_worker: Make, folders: dict[str, Path], tmp_path: Path
) -> None:
    new_worker(name="shares-nothing").start()
    new_worker(name="shares-to-read", shared=f"scratch={folders['scratch']}").start()
    new_worker(name="lost-its-disk", shared=f"scratch={tmp_path}/gone").start()
    run = pool.submit(run="true", workspace={"shared": "scratch", "write": True})

    def lines() -> dict[str, str]:
        found = pool.admin.get(f"/v1/jobs/{run}.1/why").json()["workers"]
        return {each["worker"]: each["reason"] for each in found}

    names = {"shares-nothing", "shares-to-read", "lost-its-disk"}
    wait_until(lambda: names <= lines().keys(), what="the workers to be there")
    assert lines()["shares-nothing"] == lines()["lost-its-disk"] == "shares no folder named 'scratch'"
    assert lines()["shares-to-read"] == "shares the folder 'scratch' for reading only, but the job writes to it"
    pool.admin.post(f"/v1/runs/{run}/cancel")


def test_a_folder_with_the_workers_own_files_cannot_be_shared(new_worker: Make, tmp_path: Path) -> None:
    worker = new_worker(shared=f"home={tmp_path}")
    worker.start()
    wait_until(lambda: worker.process is not None and worker.process.poll() is not None, what="the worker to end")
    assert "must be apart" in worker.log.read_text()
