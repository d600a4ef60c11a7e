"""A worker and its supervisor on a system without Linux's own calls and files: plain processes still run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from support.coordinator import CoordinatorProcess
from support.pool import Pool
from support.waiting import wait_until
from support.without_linux import environment
from support.worker import WorkerProcess

SAYS_AT_START = (
    "on this system the memory of a plain process is not limited",
    "on this system a plain process keeps running if it leaves its job's session, or if its supervisor is killed",
    "on this system the end of a container is noticed up to half a second late",
    "on this system a very long log keeps its disk space until its job has ended",
)


def test_plain_processes_run_on_a_system_without_the_features_of_linux(
    coordinator: CoordinatorProcess, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when the journal is flushed by `os.fdatasync`, and when the supervisor needs `os.waitid`."""
    data = b'{"n": 7}\n'
    sha256 = hashlib.sha256(data).hexdigest()
    pool.admin.put(f"/v1/blobs/{sha256}", data=data)
    go_on = tmp_path / "go on"
    long = tmp_path / ("a-long-path-" * 10)  # longer than the address of a socket may be
    with WorkerProcess(long, coordinator, env=environment(tmp_path / "python"), labels="test=elsewhere") as worker:
        job = pool.submit(
            run=f"cat in.txt; until test -e '{go_on}'; do sleep 0.05; done; cp in.txt $DEBORGEN_RESULT; exit 3",
            files=[{"path": "in.txt", "sha256": sha256, "size": len(data)}],
            artifacts=[{"path": "in.txt", "when": "always"}],
            requires={"test": "elsewhere"}, resources={"memory": "64MiB"},
        )  # fmt: skip
        wait_until(lambda: pool.log(job) == data, what="the job to begin", log=worker.log)
        assert worker.stages() == ["running"], "the owner's commands reach it"
        worker.kill()
        worker.start()
        go_on.touch()
        ended = pool.until(job)
    assert (ended["state"], ended["exit_code"], ended["result"]) == ("failed", 3, {"n": 7})
    assert [each["path"] for each in ended["artifacts"]] == ["in.txt"]
    assert ended["attempts"] == 1, "the second session adopted it"
    said = worker.said()
    for sentence in SAYS_AT_START:
        assert said.count(sentence) == 2, "once per session"
