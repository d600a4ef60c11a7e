"""The owner's commands, with and without the coordinator; draining, a full disk."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from deborgen_worker import host
from support.coordinator import CoordinatorProcess, clean_environment
from support.podman import IMAGE, Podman
from support.pool import Pool
from support.registry import registry
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def pid_in(path: Path) -> int:
    return int(wait_until(lambda: path.exists() and path.read_text().strip(), 90))


def test_an_idle_worker_says_what_it_is_doing(new_worker: Make) -> None:
    worker = new_worker().start()
    wait_until(lambda: "idle, waiting for work; last contact" in worker.said(), 90)
    said = worker.command("status").stdout
    assert said.startswith(f"{worker.name}: idle, waiting for work; last contact ")
    assert "free: 2 of 2 cpus, 8.0 of 8.0 GiB of memory" in said


def test_pause_stops_new_work_at_once_and_lets_running_jobs_finish(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    worker = new_worker(labels="test=pause").start()
    first = pool.submit(run=f"while [ ! -e {go} ]; do sleep 0.02; done", requires={"test": "pause"})
    pool.until(first, "running")
    wait_until(lambda: worker.stages() == ["running"])
    assert worker.command("pause", "2h").stdout.startswith("paused until ")
    second = pool.submit(run="true", requires={"test": "pause"})
    seen = wait_until(lambda: pool.admin.get(f"/v1/workers/{worker.name}").json()["state"] == "paused")
    assert seen
    go.touch()
    assert pool.until(first)["state"] == "succeeded"
    # The coordinator may have given the job to a waiting claim before it knew of the pause.
    wait_until(lambda: pool.job(second)["state"] == "queued")
    assert "paused by its owner until" in worker.status()["reason"]
    assert worker.command("resume").stdout.strip() == "open for work"
    assert pool.until(second)["state"] == "succeeded"


def test_a_timed_pause_is_shown_with_its_end_and_ends_by_itself(new_worker: Make, pool: Pool) -> None:
    """Seen to fail when the heartbeat does not carry the end."""
    worker = new_worker().start()
    wait_until(lambda: pool.state_of(worker.name) == "open", what="the worker to join", log=worker.log)

    def seen() -> dict[str, Any]:
        return dict(pool.admin.get(f"/v1/workers/{worker.name}").json())

    before = datetime.now(UTC)
    worker.command("pause", "2h")
    wait_until(lambda: seen()["availability"] == "paused", what="the pause to be seen", log=worker.log)
    until = datetime.fromisoformat(seen()["until"])
    assert before + timedelta(hours=2) <= until <= datetime.now(UTC) + timedelta(hours=2)
    assert seen()["reason"].startswith("paused by its owner until ")
    worker.command("pause", "1s")
    wait_until(lambda: seen()["availability"] == "free", what="the pause to end", log=worker.log)
    assert seen()["until"] is None


def test_the_pool_shows_the_metrics_of_a_workers_machine(new_worker: Make, pool: Pool) -> None:
    """Seen to fail when only the registration carries metrics."""
    worker = new_worker().start()

    def metrics() -> Any:
        answer = pool.admin.get(f"/v1/workers/{worker.name}")
        return answer.json()["metrics"] if answer.status_code == 200 else None

    first = wait_until(metrics, what="the metrics to arrive", log=worker.log)
    assert 0 <= first["load"] < 10_000
    assert 0 < first["memory_free"] <= host.memory()
    assert 0 < first["disk_free"] <= shutil.disk_usage(worker.state).total
    # Something is always written while a test runs, so that the free memory differs from one heartbeat to the next.
    wait_until(lambda: metrics()["memory_free"] != first["memory_free"], what="newer ones", log=worker.log)


def test_a_worker_outside_its_hours_is_closed(new_worker: Make, pool: Pool) -> None:
    later = (datetime.now() + timedelta(hours=2)).strftime("%H:%M")
    end = (datetime.now() + timedelta(hours=3)).strftime("%H:%M")
    worker = new_worker(hours=f"{later}-{end}").start()

    def seen() -> tuple[str, str]:
        answer = pool.admin.get(f"/v1/workers/{worker.name}")
        return (answer.json()["availability"], answer.json()["state"]) if answer.status_code == 200 else ("", "")

    wait_until(lambda: seen() == ("closed", "paused"), what="the worker to be closed", log=worker.log)


def test_a_pause_survives_a_restart_and_can_be_set_while_no_worker_is_running(new_worker: Make, pool: Pool) -> None:
    worker = new_worker(labels="test=held")
    assert "no worker is running now" in worker.command("pause").stdout
    worker.start()
    run = pool.submit(run="true", requires={"test": "held"})
    wait_until(lambda: worker.command("status").returncode == 0)
    wait_until(lambda: worker.status()["state"] == "paused")
    assert pool.job(run)["state"] == "queued"
    worker.command("resume")
    assert pool.until(run)["state"] == "succeeded"


def test_pause_now_freezes_running_jobs_and_resume_wakes_them(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    count, mark = tmp_path / "count", tmp_path / "pid"
    worker = new_worker(labels="test=freeze").start()
    script = f"echo $$ > {mark}; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i > {count}; sleep 0.01; done"
    run = pool.submit(run=script, requires={"test": "freeze"})
    pid = pid_in(mark)
    assert "frozen" in worker.command("pause", "--now").stdout
    wait_until(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())
    assert worker.status()["attempts"][0]["stage"] == "frozen"
    assert pool.job(run)["state"] == "running"
    worker.command("resume")
    wait_until(lambda: ") T " not in Path(f"/proc/{pid}/stat").read_text())
    before = count.read_text()
    wait_until(lambda: count.read_text() not in {before, ""})
    pool.admin.post(f"/v1/jobs/{run}.1/cancel", json={})
    assert pool.until(run)["state"] == "canceled"


@pytest.mark.parametrize(("words", "keep"), [(("2h",), "15m"), ((), "1s")])
def test_a_frozen_job_is_given_back_only_when_another_machine_wants_it(
    words: tuple[str, ...], keep: str, new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """If the pause is known to be long, at once; otherwise after `keep_frozen`. Seen to fail when the time alone
    decides."""
    mark, second, label = tmp_path / "pid", tmp_path / "second", f"test=back-{keep}"
    worker = new_worker(labels=label, keep_frozen=keep, kill_grace="1s").start()
    script = f"[ -e {second} ] && exit 0; touch {second}; echo $$ > {mark}; sleep 1000"
    run = pool.submit(run=script, requires={"test": f"back-{keep}"})
    pid = pid_in(mark)
    pool.until_named(run)
    worker.command("pause", *words, "--now")
    wait_until(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())
    since = datetime.fromisoformat(pool.admin.get(f"/v1/workers/{worker.name}").json()["last_seen_at"])

    def seen_since() -> float:
        seen = datetime.fromisoformat(pool.admin.get(f"/v1/workers/{worker.name}").json()["last_seen_at"])
        return (seen - since).total_seconds()

    wait_until(lambda: seen_since() > 4, what="several heartbeats and `keep_frozen` to pass")
    assert worker.status()["attempts"][0]["stage"] == "frozen", "nobody else could run it"
    other = new_worker(labels=label).start()
    job = pool.until(run)
    assert [each["outcome"] for each in job["history"]] == ["released", "succeeded"]
    assert [each["worker"] for each in job["history"]] == [worker.name, other.name]
    assert job["history"][0]["reason"] == "its owner uses the machine, and another one can run the job"
    wait_until(lambda: gone(pid))


def test_when_the_hours_and_the_time_to_finish_are_over_a_job_is_frozen_and_then_given_back(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """The hours change while the worker is dead, so that the test need not wait for their end. Seen to fail when the
    end of the hours only keeps new jobs out."""
    mark = tmp_path / "pid"
    ended, begin = (datetime.now() + timedelta(minutes=each) for each in (-3, 180))
    hours = f"{begin:%H:%M}-{ended:%H:%M}"
    worker = new_worker(labels="test=morning", kill_grace="1s").start()
    run = pool.submit(run=f"echo $$ > {mark}; sleep 1000", requires={"test": "morning"})
    pid = pid_in(mark)
    pool.until_named(run)

    def restart(**settings: str) -> None:
        worker.kill()
        worker.settings |= settings
        worker.start()
        wait_until(worker.answers, what="the worker to answer", log=worker.log)

    restart(hours=hours, finish="1h")
    wait_until(lambda: worker.stages() == ["running"] and worker.status()["state"] == "closed")
    assert ") T " not in Path(f"/proc/{pid}/stat").read_text()
    restart(finish="1s", keep_frozen="1h")
    wait_until(lambda: worker.stages() == ["frozen"])
    assert ") T " in Path(f"/proc/{pid}/stat").read_text()
    restart(keep_frozen="1s")
    job = pool.until(run, "queued")
    assert (job["attempts"], job["history"][0]["outcome"]) == (0, "released")
    assert job["history"][0]["reason"] == "the hours of this machine are over"
    wait_until(lambda: gone(pid))


def test_cancel_reaches_the_job_within_a_heartbeat(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    new_worker(labels="test=cancel").start()
    run = pool.submit(run=f"echo $$ > {mark}; sleep 1000", requires={"test": "cancel"})
    pid = pid_in(mark)
    pool.admin.post(f"/v1/jobs/{run}.1/cancel", json={"reason": "enough"})
    job = pool.until(run)
    assert (job["state"], job["history"][0]["outcome"]) == ("canceled", "canceled")
    assert gone(pid)


def test_the_heartbeat_carries_progress(new_worker: Make, pool: Pool) -> None:
    new_worker(labels="test=progress").start()
    run = pool.submit(run="echo '0.25 warming up' > $DEBORGEN_PROGRESS; sleep 1000", requires={"test": "progress"})
    wait_until(lambda: pool.job(run)["progress"] == 0.25, 90)
    assert pool.job(run)["message"] == "warming up"


def test_history_lists_what_ran_and_for_whom(new_worker: Make, pool: Pool) -> None:
    worker = new_worker(labels="test=history").start()
    run = pool.submit(run="exit 3", name="sum", requires={"test": "history"})
    pool.until(run)
    [item] = wait_until(lambda: json.loads(worker.command("history", "--json").stdout))
    assert (item["attempt"], item["name"], item["submitter"]) == (f"{run}.1/1", "sum", "test-admin")
    assert item["outcome"] == "failed"
    worker.stop()
    assert "sum for test-admin" in worker.command("history").stdout


def test_history_says_what_a_job_used_and_why_it_ended(new_worker: Make, pool: Pool) -> None:
    """Seen to fail when only outcome and time are written down."""
    worker = new_worker(labels="test=receipt").start()
    run = pool.submit(run="echo some output; kill -9 $$", requires={"test": "receipt"})
    pool.until(run)
    [item] = wait_until(lambda: json.loads(worker.command("history", "--json").stdout))
    assert (item["outcome"], item["reason"], item["image"]) == ("failed", "killed by SIGKILL", "")
    assert item["cpu_seconds"] >= 0
    assert item["peak_memory"] > 0
    assert (item["bytes_received"], item["bytes_sent"]) == (0, len("some output\n"))
    said = worker.command("history").stdout
    assert "s of processor time" in said
    assert "received 0B, sent 12B; killed by SIGKILL" in said


@pytest.mark.podman
@pytest.mark.root
def test_history_names_the_image_with_its_digest(container_worker: Make, pool: Pool) -> None:
    """Seen to fail when the image is not written down."""
    worker = container_worker(labels="test=digest").start()
    pool.until(pool.submit(run="sleep 1", image=IMAGE, requires={"test": "digest"}))
    [item] = wait_until(lambda: json.loads(worker.command("history", "--json").stdout))
    assert item["image"].startswith(f"{IMAGE}@sha256:")
    assert item["peak_memory"] > 0
    assert item["image"] in worker.command("history").stdout


def test_sigterm_drains_and_gives_back_jobs_that_do_not_end(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    worker = new_worker(labels="test=drain", drain_grace="1s", kill_grace="1s").start()
    run = pool.submit(run=f"echo $$ > {mark}; sleep 1000", requires={"test": "drain"})
    pid = pid_in(mark)
    assert worker.process is not None
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(90) == 0
    assert gone(pid)
    job = pool.job(run)
    assert (job["state"], job["attempts"], job["history"][0]["outcome"]) == ("queued", 0, "released")


def test_sigterm_lets_a_short_job_finish(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    go, mark = tmp_path / "go", tmp_path / "pid"
    worker = new_worker(labels="test=short").start()
    run = pool.submit(
        run=f"echo $$ > {mark}; while [ ! -e {go} ]; do sleep 0.02; done; echo fine", requires={"test": "short"}
    )
    pid_in(mark)
    assert worker.process is not None
    worker.process.send_signal(signal.SIGTERM)
    wait_until(lambda: pool.admin.get(f"/v1/workers/{worker.name}").json()["state"] == "draining")
    go.touch()
    assert worker.process.wait(90) == 0
    assert pool.job(run)["state"] == "succeeded"
    assert pool.log(run) == b"fine\n"


def test_leave_gives_all_jobs_back_and_leaves_the_pool(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    worker = new_worker(labels="test=leave", kill_grace="1s").start()
    run = pool.submit(run=f"echo $$ > {mark}; sleep 1000", requires={"test": "leave"})
    pid = pid_in(mark)
    assert "has left the pool" in worker.command("leave").stdout
    assert worker.process is not None
    assert worker.process.wait(90) == 0
    assert gone(pid)
    assert pool.admin.get(f"/v1/workers/{worker.name}").json()["state"] == "left"
    assert pool.job(run)["state"] == "queued"


@pytest.mark.podman
@pytest.mark.root
def test_leave_removes_the_images_that_the_worker_has_pulled_and_says_what_it_leaves(
    container_worker: Make, podman: Podman, tmp_path: Path
) -> None:
    """An image that was on the machine before stays. Seen to fail when pulled images stay."""
    with (
        registry(podman, IMAGE, tmp_path) as (address, conf),
        CoordinatorProcess(tmp_path, registries=f"public,{address}") as coordinator,
    ):
        pool, image = Pool(coordinator), f"{address}/test/pulled:1"
        worker = container_worker(
            coordinator=coordinator, registries=address, podman_socket="", labels="test=image",
            env={"CONTAINERS_REGISTRIES_CONF": str(conf)},
        ).start()  # fmt: skip
        for name in (image, IMAGE):
            job = pool.until(pool.submit(run="true", image=name, requires={"test": "image"}), seconds=120)
            assert job["state"] == "succeeded", job["reason"]
        said = worker.command("leave").stdout
        assert worker.process is not None
        assert worker.process.wait(90) == 0
        assert f"removed {image}; left on this machine: {worker.state} (" in said
        assert f"and the token file {worker.token_file}" in said
        left = podman("images", "--format", "{{.Repository}}:{{.Tag}}").split()
        assert image not in left
        assert IMAGE in left
        services = [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(worker.state / "podman")]
        psutil.wait_procs(services, 30)
        assert not any(each.is_running() for each in services), "its own Podman service is still there"


def test_a_background_process_with_its_own_session_ends_with_its_job(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    new_worker(labels="test=daemon").start()
    script = f"setsid sh -c 'echo $$ > {mark}; exec sleep 1000' & while [ ! -s {mark} ]; do sleep 0.02; done"
    assert pool.until(pool.submit(run=script, requires={"test": "daemon"}))["state"] == "succeeded"
    wait_until(lambda: gone(pid_in(mark)))


def test_the_owners_commands_say_so_when_no_worker_runs(new_worker: Make) -> None:
    worker = new_worker()
    done = worker.command("status")
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.startswith("no worker is running on ")


def test_a_second_worker_on_the_same_state_directory_is_refused(new_worker: Make, pool: Pool) -> None:
    worker = new_worker().start()
    wait_until(lambda: "is registered" in worker.said())
    first = worker.process
    worker.start()
    assert worker.process is not None
    assert worker.process.wait(90) == 7
    assert "another worker is already running on" in worker.said()
    worker.process = first


def test_a_rejected_token_ends_the_start_with_a_clear_message(new_worker: Make) -> None:
    worker = new_worker()
    worker.token_file.write_text("dbg_worker_x_nonsense")
    worker.start()
    assert worker.process is not None
    assert worker.process.wait(90) == 4
    assert "does not accept this worker" in worker.said()
    assert "Traceback" not in worker.said()


def test_a_token_file_that_others_can_read_is_refused_with_the_command_that_mends_it(new_worker: Make) -> None:
    """Seen to fail when the permissions are not checked."""
    worker = new_worker()
    worker.token_file.chmod(0o644)
    worker.start()
    assert worker.process is not None
    assert worker.process.wait(90) == 2
    assert f"other users can read it; run: chmod 600 {worker.token_file}" in worker.said()


def test_on_a_terminal_one_line_is_kept_up_to_date(new_worker: Make) -> None:
    worker = new_worker()
    here, there = pty.openpty()
    command = [
        sys.executable, "-m", "deborgen_worker", "run", "--coordinator", worker.url, "--name", worker.name,
        "--token-file", str(worker.token_file), "--state-dir", str(worker.state), "--runner", "subprocess",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=there, stdout=there, env=clean_environment())
    os.close(there)
    seen = b""

    def read() -> bool:
        nonlocal seen
        seen += os.read(here, 65536)
        return seen.count(b"\r\x1b[Kidle, waiting for work; last contact ") >= 2

    try:
        wait_until(read, 90)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        worker._end_supervisor()
        os.close(here)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.root
def test_fault_32_a_full_disk_stops_new_work_and_results_still_fit(
    new_worker: Make, pool: Pool, small_disk: Path, tmp_path: Path
) -> None:
    """Seen to fail when a full disk is not noticed."""
    go, mark = tmp_path / "go", tmp_path / "pid"
    worker = new_worker(labels="test=full", min_free_disk="2MiB", cpus=1)
    worker.state = small_disk / "state"
    worker.start()
    script = f"echo $$ > {mark}; while [ ! -e {go} ]; do sleep 0.02; done; echo some output || true; exit 3"
    run = pool.submit(run=script, requires={"test": "full"}, resources={"disk": "1MiB"})
    pid_in(mark)
    with (small_disk / "filler").open("wb") as filler:
        try:
            while True:
                filler.write(b"x" * 65536)
                filler.flush()
        except OSError:
            pass
    go.touch()
    job = pool.until(run)
    assert (job["state"], job["exit_code"]) == ("failed", 3)
    wait_until(lambda: "taking no new work" in worker.said(), 90)
    later = pool.submit(run="true", requires={"test": "full"}, resources={"disk": "1MiB"})
    wait_until(lambda: worker.status()["state"] == "closed", 90)
    assert pool.job(later)["state"] == "queued"
    (small_disk / "filler").unlink()
    assert pool.until(later, seconds=120)["state"] == "succeeded"
    worker.stop()


@pytest.mark.podman
@pytest.mark.root
def test_pause_now_freezes_a_container(container_worker: Make, pool: Pool, podman: Podman) -> None:
    worker = container_worker(labels="test=ice").start()
    run = pool.submit(run="echo up; while [ ! -e go ]; do sleep 0.02; done", image=IMAGE, requires={"test": "ice"})
    wait_until(lambda: pool.log(run) == b"up\n", 90)
    [container] = podman.of(worker.name)
    worker.command("pause", "--now")
    wait_until(lambda: podman("inspect", "-f", "{{.State.Status}}", container) == "paused", 90)
    worker.command("resume")
    (worker.state / "attempts" / f"{run}.1-1" / "work" / "go").touch()
    assert pool.until(run)["state"] == "succeeded"
