"""Commands that change something: cancel, retry, workers, token, login; and the exit code of every refusal."""

from __future__ import annotations

import json
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from support.coordinator import CoordinatorProcess
from support.person import Person
from support.pool import Pool
from support.waiting import wait_until


def state_of(person: Person, run: str) -> str:
    return str(json.loads(person.out("show", run, "--json"))["run"]["state"])


def test_a_queued_job_that_is_canceled_never_starts(anna: Person) -> None:
    run = anna.submit("run: ls\nrequires: {moon: full}\nsweep: {grid: {x: [1, 2, 3]}}\n")
    assert anna.err("cancel", f"{run}.2", code=0) == f"1 job canceled before it started: {run}.2\n"
    assert anna.err("cancel", run, "--reason", "enough", code=0).splitlines() == [
        f"2 jobs canceled before they started: {run}.1, {run}.3",
        f"1 job had already ended: {run}.2",
    ]
    assert state_of(anna, run) == "canceled"
    assert "there was nothing left to cancel" in anna.err("cancel", run, code=7)
    anna.out("wait", run, code=11)
    assert "enough" in anna.out("events", f"{run}.1")


def test_a_running_job_that_is_canceled_is_told_to_stop(anna: Person) -> None:
    run = anna.submit("run: echo up; sleep 600\n")
    wait_until(lambda: anna.out("logs", run) == "up\n", what="the first line of the log")
    assert f"1 job told to stop: {run}.1" in anna.err("cancel", run, code=0)
    anna.out("wait", run, "--timeout", "30s", code=11)


def test_retry_runs_the_failed_jobs_again_as_a_new_run(anna: Person) -> None:
    flag = anna.folder / "flag"
    run = anna.submit(
        f"run: '[ ${{{{ x }}}} = 1 ] || [ -e {flag} ]'\nsweep: {{grid: {{x: [1, 2, 3]}}}}\n", "--wait", code=14
    )
    flag.touch()
    new = anna.out("retry", run, "--failed", "--watch").strip()
    assert [row["params"] for row in anna.rows("show", new)] == ["x=2", "x=3"]
    assert json.loads(anna.out("show", new, "--json"))["run"]["retry_of"] == int(run)
    assert len(anna.rows("show", anna.out("retry", run, "--all").strip())) == 3
    assert "error:" in anna.err("retry", new, "--failed", code=7)


def test_wait_times_out_with_124_and_the_job_continues(anna: Person) -> None:
    run = anna.submit("run: sleep 600\n")
    started = time.monotonic()
    assert "the wait timed out" in anna.err("wait", run, "--timeout", "1s", code=124)
    assert time.monotonic() - started < 10
    assert state_of(anna, run) in ("queued", "running")
    anna.out("cancel", run)
    anna.out("wait", f"{run}.1", code=11)


def test_wait_for_several_exits_with_the_code_of_the_first_failure(anna: Person) -> None:
    good, bad = anna.submit("run: 'true'\n"), anna.submit("run: exit 1\n")
    assert anna.err("wait", good, bad, code=10).splitlines() == [f"run {good} succeeded", f"run {bad} failed"]
    assert anna.err("wait", "-q", good, code=0) == ""


def test_a_worker_is_paused_drained_and_resumed(admin: Person, anna: Person) -> None:
    admin.out("workers", "pause", "box")
    row = admin.rows("workers")[0]
    assert (row["availability"], row["state"]) == ("paused", "paused")
    run = anna.submit("run: echo now\n")
    assert "paused" in anna.out("why", run)
    admin.out("workers", "resume", "box")
    anna.out("wait", run, "--timeout", "30s")
    admin.out("workers", "drain", "box")
    wait_until(lambda: admin.rows("workers")[0]["state"] in ("draining", "left", "offline"), what="the worker to drain")
    admin.out("workers", "resume", "box")
    wait_until(lambda: admin.rows("workers")[0]["state"] == "open", what="the worker to be open again")


def test_only_an_admin_may_control_workers_and_tokens(anna: Person) -> None:
    for words in (
        ["workers", "pause", "box"],
        ["token", "create", "--role", "viewer", "--name", "x"],
        ["token", "list"],
    ):
        assert "error:" in anna.err(*words, code=4)


def test_a_viewer_is_told_which_roles_may_submit(pool: Pool) -> None:
    """Seen to fail when the role worker, which may also upload files, was suggested too."""
    vera = pool.person("vera", "viewer")
    vera.write("job.yml", "run: ls\nfiles: [job.yml]\n")
    said = vera.err("submit", "job.yml", code=4)
    assert "a token of the role viewer cannot do this" in said
    assert "use the token of a role that can: admin or submitter\n" in said


def test_doctor_names_the_default_image_of_the_pool(tmp_path: Path) -> None:
    """Seen to fail in release 0.1, which did not know it."""
    with Pool(CoordinatorProcess(tmp_path, default_image="python:3.12-slim")) as pool:
        said = pool.person("ada").out("doctor", code=5)
    assert "a job without an image runs in python:3.12-slim, the pool's default" in said


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b""])
def test_an_address_that_does_not_speak_http_is_not_tried_for_long(stranger: Person, greeting: bytes) -> None:
    """Seen to fail when a port that cuts each connection was tried for 20 seconds, eight times or more."""
    tried: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                with client:
                    tried.append(client)
                    client.sendall(greeting)
                    client.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        said = stranger.err("--url", f"http://127.0.0.1:{server.getsockname()[1]}", "list", code=5)
        server.shutdown(socket.SHUT_RDWR)
    assert ("does not speak HTTP" if greeting else "was cut") in said.splitlines()[-2]
    assert len(tried) == (1 if greeting else 4)


def test_a_token_is_created_used_and_revoked(pool: Pool, admin: Person, stranger: Person) -> None:
    secret = admin.out("token", "create", "--role", "submitter", "--name", "emil", "--expires", "30d").strip()
    assert secret.startswith("dbg_submitter_")
    row = next(row for row in admin.rows("token", "list") if row["name"] == "emil")
    assert secret not in admin.out("token", "list")
    assert row["expires"]
    stranger.out("login", pool.coordinator.url, stdin=f"{secret}\n".encode())
    assert stranger.submit("run: echo hi\n", "--wait").isdigit()
    admin.out("token", "revoke", row["id"])
    assert "deborgen login" in stranger.err("list", code=4)


def test_login_stores_the_token_privately_and_for_one_address(pool: Pool, anna: Person, stranger: Person) -> None:
    secret = anna.environment["DEBORGEN_TOKEN"]
    said = stranger.err("login", pool.coordinator.url, stdin=f"{secret}\n".encode(), code=0)
    assert "as anna (submitter)" in said
    assert secret not in said
    (path,) = (stranger.home / "config/deborgen/tokens").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() == secret
    stranger.out("list")
    stranger.out("--url", pool.coordinator.url.replace("127.0.0.1", "localhost"), "list")
    with socket.create_server(("127.0.0.1", 0)) as other:
        asking = stranger.start("--url", f"http://127.0.0.1:{other.getsockname()[1]}", "list")
        client, _ = other.accept()
        with client:
            request = client.recv(1 << 16)
        asking.kill()
        asking.wait()
    assert request.startswith(b"GET /v1/runs")
    assert secret.encode() not in request, "another address gets no token"


def test_a_wrong_token_is_not_stored(pool: Pool, stranger: Person) -> None:
    stranger.err("login", pool.coordinator.url, stdin=b"dbg_submitter_x_y\n", code=4)
    stranger.err("login", pool.coordinator.url, stdin=b"\n", code=4)
    assert not (stranger.home / "config").exists()


def test_doctor_checks_step_by_step_and_stops_at_the_first_problem(pool: Pool, anna: Person, stranger: Person) -> None:
    well = anna.out("doctor").splitlines()
    assert [line[0] for line in well] == ["✓", "✓", "✓", "✓", "✓", "-", "✓"]
    assert "deborgen up" in stranger.out("doctor", code=5)
    wrong = stranger.out("doctor", "--url", "http://127.0.0.1:9", code=5).splitlines()
    assert wrong[-2].startswith("✗ nothing listens at")
    unknown = stranger.out("doctor", "--url", pool.coordinator.url, code=4).splitlines()
    assert unknown[-2:] == ["✗ no token is known for it", f"    deborgen login {pool.coordinator.url}"]


def test_every_kind_of_refusal_has_an_exit_code(pool: Pool, anna: Person, stranger: Person, tmp_path: Path) -> None:
    url = pool.coordinator.url
    assert "nothing listens" in anna.err("--url", "http://127.0.0.1:9", "list", code=5)
    assert "no coordinator is known" in stranger.err("list", code=5)
    assert "error:" in stranger.err("--url", url, "list", code=4)
    assert "there is no run 99999" in anna.err("show", "99999", code=6)
    assert "there is no job" in anna.err("logs", "99999.1", code=6)
    assert "names neither" in anna.err("show", "nonsense", code=2)
    assert "there is no file" in anna.err("submit", "missing.yml", code=3)
    assert "is not the address" in anna.err("--url", "ftp://x", "list", code=2)
    for words in (["show", "99999"], ["logs", "99999.1"]):
        assert "GET /" not in anna.err(*words, code=6)


def test_another_persons_run_cannot_be_canceled(pool: Pool, anna: Person) -> None:
    run = anna.submit("run: ls\nrequires: {moon: full}\n")
    assert "error:" in pool.person("fred").err("cancel", run, code=4)
    anna.out("cancel", run)
