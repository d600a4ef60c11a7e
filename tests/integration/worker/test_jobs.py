"""Whole jobs through a real coordinator and a real worker: files, inputs, results, packing, kept workspaces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deborgen_worker.claims import PART_WAIT_SECONDS
from support.coordinator import CoordinatorProcess
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def worker(coordinator: CoordinatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """One worker for all tests that do not harm it."""
    folder = tmp_path_factory.mktemp("w")
    with WorkerProcess(folder, coordinator, labels="test=main", cpus=2, keep_failed="true", log_format="json") as each:
        yield each


def put(pool: Pool, path: str, data: bytes, mode: int = 0o644) -> dict[str, Any]:
    sha256 = hashlib.sha256(data).hexdigest()
    assert pool.admin.put(f"/v1/blobs/{sha256}", data=data).status_code == 201
    return {"path": path, "sha256": sha256, "size": len(data), "mode": mode}


def run(pool: Pool, **body: Any) -> tuple[dict[str, Any], bytes]:
    number = pool.submit(**{"requires": {"test": "main"}, **body})
    return pool.until(number), pool.log(number)


def test_files_are_in_the_workspace_with_their_modes(pool: Pool, worker: WorkerProcess) -> None:
    files = [put(pool, "sim.sh", b"#!/bin/sh\necho ran $1\n", 0o755), put(pool, "data/in.txt", b"42\n")]
    job, log = run(pool, run="./sim.sh fast; cat data/in.txt; ls -A | sort", files=files)
    assert job["state"] == "succeeded"
    assert log == b"ran fast\n42\n.deborgen\ndata\nsim.sh\n"


def test_parameters_are_variables_and_a_file(pool: Pool, worker: WorkerProcess) -> None:
    sweep = {"cases": [{"method": "rk 4", "dt": 0.001}]}
    job, log = run(pool, run='echo "$DEBORGEN_PARAM_METHOD"; cat $DEBORGEN_PARAMS; echo; echo ${{ dt }}', sweep=sweep)
    assert job["state"] == "succeeded"
    assert log.splitlines()[0] == b"rk 4"
    assert b'"dt":0.001' in log.replace(b" ", b"")


def test_the_trace_of_a_run_reaches_its_program_and_the_lines_of_both_logs(
    pool: Pool, coordinator: CoordinatorProcess, worker: WorkerProcess
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    job = {"run": "echo ${TRACEPARENT:-}", "requires": {"test": "main"}}

    def submit(traceparent: str) -> int:
        return int(pool.admin.post("/v1/runs", json=job, headers={"traceparent": traceparent}).json()["id"])

    number, other = submit(trace), submit(trace.upper())
    assert [pool.until(each)["state"] for each in (number, other)] == ["succeeded"] * 2
    assert (pool.run(number)["traceparent"], "traceparent" in pool.run(other)) == (trace, False)
    assert (pool.log(number).decode().strip(), pool.log(other)) == (trace, b"\n"), "an invalid one is ignored"

    def told() -> list[str]:
        lines = [json.loads(line) for line in worker.said().splitlines() if line.startswith("{")]
        return [line["message"] for line in lines if line.get("traceparent") == trace]

    wait_until(lambda: told() == [f"{number}.1/1 was assigned to this worker", f"{number}.1/1 has ended"])
    lines = [line for line in coordinator.logged().splitlines() if trace in line]
    assert [line.split()[3] for line in lines] == ["run.submitted", "lease.granted"]


def test_artifacts_of_a_step_are_inputs_of_the_next(pool: Pool, worker: WorkerProcess) -> None:
    requires = {"test": "main"}
    number = pool.submit(
        steps=[
            {"id": "prepare", "run": "mkdir data; echo 7 > data/n", "artifacts": ["data/**"], "requires": requires},
            {"id": "square", "run": "n=$(cat inputs/prepare/data/n); echo $((n * n))", "requires": requires},
        ]
    )
    done = pool.done(number)
    assert done["state"] == "succeeded"
    assert pool.log(f"{number}.2") == b"49\n"


def test_results_are_columns_and_a_bad_result_is_a_warning_not_a_failure(pool: Pool, worker: WorkerProcess) -> None:
    job, _ = run(pool, run='echo \'{"loss": 0.5, "ok": true}\' > metrics.json', result="metrics.json")
    assert job["result"] == {"loss": 0.5, "ok": True}
    job, log = run(pool, run="echo '[1]' > $DEBORGEN_RESULT")
    assert (job["state"], job["result"]) == ("succeeded", None)
    assert job["warnings"] == ["result left out: it is not a JSON object"]
    assert b"result left out: it is not a JSON object" in log


def test_artifacts_of_a_failed_job_are_kept_if_their_when_is_always(pool: Pool, worker: WorkerProcess) -> None:
    wanted = [{"path": "trace.txt", "when": "always"}, "out.txt"]
    job, _ = run(pool, run="echo t > trace.txt; echo o > out.txt; exit 1", artifacts=wanted)
    assert job["state"] == "failed"
    assert [each["path"] for each in job["artifacts"]] == ["trace.txt"]


def test_a_missing_artifact_is_named_in_the_log_and_on_the_job(pool: Pool, worker: WorkerProcess) -> None:
    job, log = run(pool, run="true", artifacts=["none/*.png"])
    assert job["state"] == "succeeded"
    assert log == b"[deborgen: artifact 'none/*.png' matched nothing]\n"
    assert job["warnings"] == ["artifact 'none/*.png' matched nothing"]


def test_the_workspace_of_a_failed_job_is_kept_when_its_owner_wants_it(pool: Pool, worker: WorkerProcess) -> None:
    failed, _ = run(pool, run="echo why > clue; exit 2")
    fine, _ = run(pool, run="echo fine > clue")
    wait_until(lambda: worker.status()["attempts"] == [])
    folders = worker.state / "attempts"
    assert (folders / f"{failed['id']}-1" / "work" / "clue").read_text() == "why\n"
    wait_until(lambda: not (folders / f"{fine['id']}-1").exists())


def test_a_script_stops_at_its_first_error_and_at_an_unset_variable(pool: Pool, worker: WorkerProcess) -> None:
    assert run(pool, run="false; echo after")[1] == b""
    assert run(pool, run="echo $NOT_SET; echo after")[0]["state"] == "failed"


def test_a_list_is_executed_without_a_shell(pool: Pool, worker: WorkerProcess) -> None:
    assert run(pool, run=["echo", "$HOME", "a;b"])[1] == b"$HOME a;b\n"
    job, log = run(pool, run=["no-such-program"])
    assert (job["state"], job["exit_code"]) == ("failed", 127)
    assert b"not found" in log


def test_memory_is_limited_for_plain_processes_too(pool: Pool, worker: WorkerProcess) -> None:
    script = "import sys\ntry:\n    x = bytearray(800 << 20)\nexcept MemoryError:\n    sys.exit(42)\n"
    job, _ = run(pool, run=["/usr/bin/python3", "-c", script], resources={"memory": "256MiB"})
    assert job["exit_code"] == 42


def test_jobs_are_packed_within_what_is_offered(pool: Pool, worker: WorkerProcess, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"touch {tmp_path}/begun-$DEBORGEN_PARAM_N; while [ ! -e {go} ]; do sleep 0.02; done"
    requires = {"test": "main"}
    halves = pool.submit(
        run=wait, resources={"cpus": 0.5}, sweep={"grid": {"n": {"from": 1, "to": 5}}}, requires=requires
    )
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 4, 90)
    assert worker.status()["free"]["cpus"] == 0
    # After short jobs, one more may have been prefetched. If there is no room for it, it is given back.
    wait_until(lambda: pool.run(halves)["jobs"]["queued"] == 1)
    assert len(list(tmp_path.glob("begun-*"))) == 4
    go.touch()
    assert pool.done(halves)["jobs"]["succeeded"] == 5


def test_a_job_that_asks_for_internet_is_not_given_to_an_owner_who_allows_none(
    pool: Pool, worker: WorkerProcess
) -> None:
    number = pool.submit(run="true", network="internet", requires={"test": "main"})
    why = pool.admin.get(f"/v1/jobs/{number}.1/why").json()
    assert "does not give jobs a network" in " ".join(
        each["reason"] for each in why["workers"] if each["worker"] == worker.name
    )
    pool.admin.post(f"/v1/jobs/{number}.1/cancel", json={})


def test_the_worker_says_what_it_can_do(pool: Pool, worker: WorkerProcess) -> None:
    labels = pool.admin.get(f"/v1/workers/{worker.name}").json()["labels"]
    assert (labels["runner.process"], labels["runner.container"]) == (True, False)
    assert (labels["runner.subprocess"], labels["runner.podman"]) == (True, False), "for release 0.1"
    assert {"os", "arch", "kernel", "cores", "memory", "network", "rootless"} <= set(labels)


def test_output_is_seen_within_about_a_second_of_being_written(
    pool: Pool, worker: WorkerProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    number = pool.submit(run=f"echo early; while [ ! -e {go} ]; do sleep 0.02; done", requires={"test": "main"})
    wait_until(lambda: pool.log(number) == b"early\n")
    assert pool.job(number)["state"] == "running"
    go.touch()
    pool.until(number)


def test_fault_69_the_token_appears_in_no_process_list_environment_or_log(pool: Pool, worker: WorkerProcess) -> None:
    """Seen to fail when the token is written to the log."""
    token = worker.token_file.read_text()
    _, log = run(pool, run="cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; env")
    assert token.encode() not in log
    assert token not in worker.said()
    assert all(token.encode() not in path.read_bytes() for path in worker.state.glob("*.jsonl"))
    assert token.encode() not in (worker.state / "journal").read_bytes()


def test_rule_02_a_heartbeat_names_a_program_within_a_second_of_its_start(tmp_path: Path) -> None:
    """The next regular heartbeat comes after five minutes. Seen to fail when the new program does not wake it."""
    go = tmp_path / "go"
    with (
        CoordinatorProcess(tmp_path, heartbeat_seconds=300, lease_seconds=900) as patient,
        WorkerProcess(tmp_path, patient),
    ):
        pool = Pool(patient)
        number = pool.submit(run=f"while [ ! -e {go} ]; do sleep 0.05; done")
        [attempt] = wait_until(
            lambda: [each for each in pool.job(number)["history"] if each["started_at"]], what="its start to be known"
        )
        assert attempt["outcome"] is None
        go.touch()
        assert pool.until(number)["state"] == "succeeded"


def test_a_large_job_starts_at_once_although_a_claim_waits_for_a_part_of_the_room(
    pool: Pool, new_worker: Make, tmp_path: Path
) -> None:
    """Seen to fail when the waiting claim keeps asking for the part only: the job starts seconds later."""
    new_worker(labels="test=large", cpus=2).start()
    gate, requires = tmp_path / "gate", {"test": "large"}
    small = pool.submit(
        run=f"while [ ! -e {gate} ]; do sleep 0.02; done", requires=requires, resources={"cpus": 1, "memory": "16MiB"}
    )
    pool.until_named(small)  # by now a claim for the other CPU waits
    gate.touch()
    pool.until(small)
    large = pool.submit(run="true", requires=requires, resources={"cpus": 2, "memory": "16MiB"})
    wait_until(lambda: pool.run(large)["state"] == "succeeded", PART_WAIT_SECONDS / 2, every=0.02)


def test_a_program_that_goes_silent_is_ended_by_its_watchdog(pool: Pool, worker: WorkerProcess) -> None:
    job, _ = run(pool, run="sleep 600", watchdog="1s")
    assert (job["state"], job["history"][0]["outcome"]) == ("failed", "stalled")
    last = pool.admin.get(f"/v1/jobs/{job['id']}/why").json()["last_lines"]
    assert last == [
        "[deborgen: the attempt ended with the outcome stalled: it wrote neither output nor progress for 1 s]"
    ]


def test_a_job_that_fills_its_disk_with_many_files_fails_with_that_reason(pool: Pool, worker: WorkerProcess) -> None:
    fill = "n=0; while :; do n=$((n + 1)); head -c 100000 /dev/zero > f$n; done"
    job, _ = run(pool, run=fill, resources={"disk": "2MiB"})
    assert (job["state"], job["history"][0]["outcome"]) == ("failed", "failed")
    assert job["reason"].startswith("disk: its workspace takes more than the 2MiB")
