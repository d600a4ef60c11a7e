"""Real containers: how they end, how they are isolated, and what happens when Podman itself fails."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import CoordinatorProcess
from support.podman import CONF, IMAGE, Podman
from support.pool import Pool
from support.targeted_proxy import TargetedProxy
from support.waiting import wait_until
from support.worker import WorkerProcess

pytestmark = [pytest.mark.podman, pytest.mark.root]


@pytest.fixture(scope="module")
def worker(
    coordinator: CoordinatorProcess, podman: Podman, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    """One worker for all tests that do not harm it."""
    each = WorkerProcess(
        tmp_path_factory.mktemp("w"), coordinator, runner="podman", podman_socket=str(podman.socket),
        env={"CONTAINERS_CONF": str(CONF), "HTTP_PROXY": "http://user:secret@proxy.example", "SECRET_OF_OWNER": "x"},
        kill_grace="1s", log_cap="8MiB", cpus=4, labels="test=main",
    )  # fmt: skip
    with each:
        yield each
    assert podman.of(each.name) == []


@pytest.fixture
def ask(pool: Pool, worker: WorkerProcess) -> Callable[..., tuple[dict[str, Any], bytes]]:
    """Runs a job in a container. Returns how it ended and its log."""

    def run(script: object, seconds: float = 60.0, **body: object) -> tuple[dict[str, Any], bytes]:
        number = pool.submit(run=script, **{"image": IMAGE, "requires": {"test": "main"}, **body})
        job = pool.until(number, seconds=seconds)
        return job, pool.log(number)

    return run


Ask = Callable[..., tuple[dict[str, Any], bytes]]


def outcome(job: dict[str, Any]) -> tuple[str, int | None]:
    last = job["history"][-1]
    return last["outcome"], last["exit_code"]


@pytest.mark.parametrize("code", [0, 1, 125, 126, 127, 137, 255])
def test_fault_56_a_job_ends_with_its_programs_own_exit_code(code: int, ask: Ask) -> None:
    """Seen to fail when the shell's exit codes are taken for Podman's."""
    job, log = ask(["sh", "-c", f"echo before; exit {code}"])
    assert outcome(job) == ("succeeded" if code == 0 else "failed", code)
    assert log == b"before\n"
    assert job["history"][-1]["image"].startswith(f"{IMAGE}@sha256:")


def test_fault_50_a_missing_image_is_an_infrastructure_failure(ask: Ask) -> None:
    """Seen to fail when a failure of the machinery is blamed on the program."""
    job, _ = ask("true", image="localhost/deborgen-missing:1")
    assert outcome(job) == ("error", None)
    assert "could not be pulled" in job["reason"]


def test_fault_50_an_image_that_appears_later_is_used(ask: Ask, worker: WorkerProcess, podman: Podman) -> None:
    """Seen to fail when an image that was missing once is missing forever."""
    image = f"localhost/deborgen-late-{worker.name}:1"
    assert outcome(ask("true", image=image)[0]) == ("error", None)
    podman("tag", IMAGE, image)
    try:
        assert outcome(ask("true", image=image)[0]) == ("succeeded", 0)
    finally:
        podman("untag", IMAGE, image)


def test_fault_96_a_registry_in_the_owners_network_is_contacted_only_if_the_owner_names_it(
    podman: Podman, tmp_path: Path
) -> None:
    """Something listens there, and says what it is. Seen to fail when every registry is allowed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        registry = f"127.0.0.1:{server.getsockname()[1]}"
        with CoordinatorProcess(tmp_path, registries=f"public,{registry}") as own:
            pool = Pool(own)
            podman_settings: dict[str, Any] = {
                "runner": "podman", "podman_socket": str(podman.socket), "env": {"CONTAINERS_CONF": str(CONF)},
            }  # fmt: skip
            with WorkerProcess(tmp_path, own, **podman_settings):
                job = pool.until(pool.submit(run="true", image=f"{registry}/secret:1"))
            assert outcome(job) == ("error", None)
            assert "images from its registry are not allowed on this machine" in job["reason"]
            with pytest.raises(BlockingIOError):
                server.accept()
            with WorkerProcess(tmp_path, own, registries=registry, **podman_settings):
                run = pool.submit(run="true", image=f"{registry}/secret:1")
                answered: list[str] = []

                def failed_after_an_answer() -> bool:
                    with contextlib.suppress(BlockingIOError), server.accept()[0] as line:
                        line.sendall(b"SSH-2.0-secret\r\n")
                        answered.append("SSH")
                    return bool(answered) and pool.job(run)["state"] == "failed"

                wait_until(failed_after_an_answer)
                job = pool.job(run)
            assert job["reason"] == f"the image {registry}/secret:1 could not be pulled: its registry is not reachable"
            assert b"SSH" not in pool.log(run)


def test_fault_51_out_of_memory_is_recognised_and_the_worker_survives(ask: Ask, worker: WorkerProcess) -> None:
    """Seen to fail when the signs of too little memory are ignored."""
    job, _ = ask("dd if=/dev/zero of=/dev/null bs=300M count=1; exit $?", resources={"memory": "64MiB"})
    assert outcome(job)[0] == "out_of_memory", job["reason"]
    killed, _ = ask("kill -9 $$")
    assert outcome(killed) == ("failed", 137)
    assert ask("true")[0]["state"] == "succeeded"


def test_a_timeout_ends_the_container(ask: Ask, worker: WorkerProcess, podman: Podman) -> None:
    job, log = ask("echo begun; sleep 100", timeout="4s")
    assert outcome(job)[0] == "timeout"
    assert b"begun\n" in log


def test_fault_54_a_job_that_ignores_term_is_killed_after_its_grace_period(ask: Ask) -> None:
    """Seen to fail when no KILL follows a TERM."""
    job, _ = ask("trap '' TERM; while true; do sleep 0.1; done", timeout="5s")
    assert outcome(job) == ("timeout", 137), "KILL ended it"


def processes_with(mark: str) -> list[str]:
    """The processes on this machine whose command line contains the mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def test_fault_57_background_processes_of_a_program_end_with_it(
    ask: Ask, worker: WorkerProcess, podman: Podman
) -> None:
    """Seen to fail when a container shares the processes of the machine."""
    mark = f"left-behind-by-{worker.name}"
    job, log = ask(
        f"setsid sh -c 'exec >/dev/null 2>&1; while true; do sleep 1; done' {mark} & sleep 0.2; ps | grep {mark}"
    )
    assert job["state"] == "succeeded"
    assert f"sh -c exec >/dev/null 2>&1; while true; do sleep 1; done {mark}".encode() in log, "it did run"
    wait_until(lambda: processes_with(mark) == [])
    wait_until(lambda: podman.of(worker.name) == [])


def test_fault_53_a_fork_bomb_is_contained(ask: Ask) -> None:
    """Seen to fail when a job may have four times the processes that its owner allows."""
    # First a tame one, to see that there is a limit; then a real one.
    job, log = ask("n=0; while [ $n -lt 1300 ]; do sleep 20 & n=$((n + 1)); done", seconds=90)
    assert outcome(job)[0] == "failed"
    assert b"fork" in log
    job, _ = ask("f() { f | f & }; f; sleep 2; exit 9", timeout="20s", seconds=90)
    assert outcome(job)[0] in {"failed", "timeout", "out_of_memory"}
    assert ask("true")[0]["state"] == "succeeded"


def test_fault_36_binary_output_arrives_byte_for_byte(ask: Ask) -> None:
    """Seen to fail when every piece of a line ends the line."""
    script = "printf 'a\\0b\\377\\r\\nc'; sleep 0.2; printf '\\033[31mred' >&2; sleep 0.2; "
    job, log = ask(script + "printf '\\n\\ntail without newline'")
    assert job["state"] == "succeeded"
    assert log == b"a\0b\xff\r\nc\x1b[31mred\n\ntail without newline"


def test_fault_35_one_line_of_many_megabytes_keeps_its_head_and_tail(ask: Ask) -> None:
    """Seen to fail when one dropped byte too many is counted."""
    job, log = ask("head -c 20000000 /dev/zero | tr '\\0' x; printf END", seconds=120)
    assert job["state"] == "succeeded"
    dropped = 20_000_003 - (8 << 20)
    assert f"[deborgen: {dropped} bytes of this log were dropped here".encode() in log
    assert log.startswith(b"x" * 1000)
    assert log.endswith(b"xEND")


def test_fault_34_a_flood_of_output_is_counted_exactly_and_uses_little_disk(ask: Ask, worker: WorkerProcess) -> None:
    """Seen to fail when one dropped byte too many is counted."""
    lines = 1_000_000
    total = sum(len(str(number)) + 1 for number in range(1, lines + 1)) + lines * 1016
    job, log = ask(f"yes | head -n 0; seq 1 {lines} | sed 's/$/{'y' * 1016}/'", seconds=280, timeout="10m")
    assert job["state"] == "succeeded", job["reason"]
    assert f"[deborgen: {total - (8 << 20)} bytes of this log were dropped here".encode() in log
    assert log.startswith(b"1yyy")
    assert log.endswith(f"{lines}{'y' * 1016}\n".encode())
    assert total > 10**9
    assert peak_memory(worker) < 200 << 20


def peak_memory(worker: WorkerProcess) -> int:
    assert worker.process is not None
    for line in Path(f"/proc/{worker.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no peak")


# What a job can do to the machine: nothing


def test_a_job_has_no_capability_and_cannot_gain_one(ask: Ask) -> None:
    _, log = ask("grep -E 'CapEff|CapBnd|CapPrm|NoNewPrivs|Seccomp:' /proc/self/status")
    lines = dict(line.split(":\t") for line in log.decode().splitlines())
    assert lines == {"CapPrm": "0" * 16, "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}


def test_a_job_has_no_network_except_its_own_loopback(ask: Ask) -> None:
    tries = "wget -T 2 -q -O - http://10.0.0.1/ && echo out; nslookup example.org && echo out"
    _, log = ask(f"ls /sys/class/net; ip route; {tries}; true")
    assert log.decode().splitlines()[0] == "lo"
    assert b"out\n" not in log


def test_a_job_that_asks_for_internet_has_a_network_where_the_owner_allows_one(
    coordinator: CoordinatorProcess, pool: Pool, podman: Podman, tmp_path: Path
) -> None:
    """From the container, a server on this machine can be reached at the bridge's address."""
    with (
        WorkerProcess(
            tmp_path, coordinator, runner="podman", podman_socket=str(podman.socket), network="internet",
            env={"CONTAINERS_CONF": str(CONF)}, labels="test=internet",
        ) as worker,
        socket.create_server(("", 0)) as server,
    ):  # fmt: skip
        server.settimeout(60)
        port = server.getsockname()[1]
        gate = "$(ip route | sed -n 's/default via \\([0-9.]*\\) .*/\\1/p')"
        script = f"echo hello | nc -w 10 {gate} {port}"
        number = pool.submit(run=script, image=IMAGE, network="internet", requires={"test": "internet"})
        line, _ = server.accept()
        with line:
            assert line.recv(100) == b"hello\n"
        job = pool.until(number)
        assert job["state"] == "succeeded", (job["reason"], pool.log(number))
        assert worker.name == job["history"][-1]["worker"]


def test_a_job_can_write_only_to_its_workspace_and_tmp(ask: Ask) -> None:
    places = "/ /bin /etc /proc /proc/sys/kernel /sys /sys/fs/cgroup /run /dev"
    script = f"for d in {places}; do (echo x > $d/probe) 2>/dev/null && echo wrote $d; done; "
    script += "echo x > /tmp/ok; echo x > /job/ok; cat /tmp/ok /job/ok"
    _, log = ask(script)
    assert set(log.decode().splitlines()) <= {"x", "wrote /dev"}  # /dev is a small tmpfs of the container's own
    assert log.decode().splitlines()[-2:] == ["x", "x"]


def test_tmp_is_limited_in_size(ask: Ask) -> None:
    _, log = ask("dd if=/dev/zero of=/tmp/big bs=1M count=400 2>&1; exit 1", resources={"memory": "1GiB"})
    assert b"No space left on device" in log


def test_processes_memory_cpus_and_files_are_limited(ask: Ask) -> None:
    old = "pids/pids.max memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us"
    new = "pids.max memory.max cpu.max"
    script = f"cd /sys/fs/cgroup; cat {old} 2>/dev/null || cat {new}; ulimit -c"
    _, log = ask(script, resources={"memory": "128MiB", "cpus": 0.5})
    words = log.decode().split()
    assert words[0] == "1024"
    assert words[1] == str(128 << 20)
    assert "50000" in words
    assert words[-1] == "0"


def test_a_job_sees_nothing_of_the_hosts_environment_or_files(ask: Ask, worker: WorkerProcess) -> None:
    _, log = ask(f"env; ls {worker.folder} {Path.cwd()} /root /home 2>&1; mount; cat /proc/1/environ | tr '\\0' '\\n'")
    text = log.decode()
    for secret in ("secret", "SECRET_OF_OWNER", "proxy.example", worker.token_file.read_text()):
        assert secret not in text
    assert "worker.log" not in text


def test_a_job_sees_no_device_of_the_host(ask: Ask) -> None:
    _, log = ask("ls /dev")
    assert not {"vda", "sda", "kvm", "mem", "fuse", "loop0", "nvidia0"} & set(log.decode().split())


# Podman fails


def runs(pid: int) -> bool:
    """Whether there is such a process, and it is not a zombie."""
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


def test_fault_49_killing_conmon_ends_the_attempt_as_an_error(
    pool: Pool, podman: Podman, worker: WorkerProcess
) -> None:
    """Seen to fail when conmon is not watched."""
    run = pool.submit(run="echo up; sleep 1000", image=IMAGE, requires={"test": "main"})
    wait_until(lambda: pool.log(run) == b"up\n", 90)
    [container] = podman.of(worker.name, "--filter", f"label=deborgen.attempt={run}.1/1")
    state = podman.inspect(container)["State"]
    os.kill(state["ConmonPid"], signal.SIGKILL)

    job = pool.until(run)

    assert outcome(job)[0] == "error"
    assert "its monitor was killed" in job["reason"]
    wait_until(lambda: not runs(state["Pid"]))
    wait_until(lambda: podman.of(worker.name) == [], 90)


@pytest.fixture
def aimed(podman_ready: None, tmp_path: Path) -> Iterator[tuple[Podman, TargetedProxy]]:
    """A Podman service behind a proxy that the test controls."""
    own = Podman(tmp_path).start_service_on_a_port()
    with TargetedProxy(own.url.removeprefix("tcp://")) as proxy:
        yield own, proxy
    own.stop_service()


def once(**faults: str) -> Callable[[str, bytes], str]:
    """A fault for the first request whose line has this word. All others get through."""
    return lambda line, _body: next((faults.pop(word) for word in list(faults) if word in line.split("?")[0]), "")


def behind(proxy: TargetedProxy, new_worker: Callable[..., WorkerProcess], label: str) -> WorkerProcess:
    """A worker that reaches Podman only through the proxy."""
    socket_ = proxy.url.replace("http", "tcp")
    env = {"CONTAINERS_CONF": str(CONF)}
    return new_worker(runner="podman", podman_socket=socket_, labels=f"test={label}", env=env).start()


def test_a_container_that_cannot_be_inspected_after_its_start_goes_on(
    aimed: tuple[Podman, TargetedProxy], pool: Pool, new_worker: Callable[..., WorkerProcess]
) -> None:
    own, proxy = aimed
    each = behind(proxy, new_worker, "unseen")
    wait_until(lambda: "is registered" in each.said())
    proxy.aim = once(json="drop_before")
    run = pool.submit(run="echo once; exit 3", image=IMAGE, requires={"test": "unseen"})
    job = pool.until(run)
    assert [(line["outcome"], line["exit_code"]) for line in job["history"]] == [("failed", 3)]
    assert pool.log(run) == b"once\n"
    assert [fault for _, fault in proxy.log if fault] == ["drop_before"]
    wait_until(lambda: own.of(each.name) == [], 90)


def test_a_container_whose_creation_was_not_answered_is_not_left_behind(
    aimed: tuple[Podman, TargetedProxy], pool: Pool, new_worker: Callable[..., WorkerProcess]
) -> None:
    own, proxy = aimed
    each = behind(proxy, new_worker, "unanswered")
    proxy.aim = once(create="drop_after", kill="drop_before")  # its removal does not get through either
    run = pool.submit(run="echo once", image=IMAGE, requires={"test": "unanswered"})
    job = pool.until(run)
    outcomes = [line["outcome"] for line in job["history"]]
    assert set(outcomes[:-1]) == {"released"}
    assert outcomes[-1] == "succeeded"
    wait_until(lambda: own.of(each.name) == [], 90)


def test_fault_48_a_service_that_hangs_or_dies_stops_new_work_and_nothing_else(
    pool: Pool, new_worker: Callable[..., WorkerProcess], podman_ready: None, tmp_path: Path
) -> None:
    """Seen to fail when Podman's health is not checked."""
    own = Podman(tmp_path).start_service()
    each = new_worker(
        runner="podman", podman_socket=str(own.socket), env={"CONTAINERS_CONF": str(CONF)}, labels="test=hang"
    ).start()
    try:
        wait = "echo up; while [ ! -e go ]; do sleep 0.05; done; echo end"
        running = pool.submit(run=wait, image=IMAGE, requires={"test": "hang"})
        wait_until(lambda: pool.log(running) == b"up\n", 90)
        own.service.send_signal(signal.SIGSTOP)
        wait_until(lambda: "taking no new work: podman" in each.said(), 90)
        seen = pool.admin.get(f"/v1/workers/{each.name}").json()
        wait_until(lambda: pool.admin.get(f"/v1/workers/{each.name}").json()["state"] == "paused")
        first = seen["last_seen_at"]
        wait_until(lambda: pool.admin.get(f"/v1/workers/{each.name}").json()["last_seen_at"] > first)
        waiting = pool.submit(run="true", image=IMAGE, requires={"test": "hang"})
        own.service.send_signal(signal.SIGCONT)
        own.stop_service()
        (each.state / "attempts" / f"{running}.1-1" / "work" / "go").touch()
        assert pool.job(waiting)["state"] == "queued"
        own.start_service()
        assert pool.until(running, seconds=120)["state"] == "succeeded"
        assert pool.log(running) == b"up\nend\n"
        assert pool.until(waiting, seconds=120)["state"] == "succeeded"
    finally:
        each.stop()
        own.remove_all(each.name)
        own.stop_service()
