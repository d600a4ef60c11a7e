"""One client that submits one-job runs one after another, with a real worker of two slots that runs them.

    python benchmarks/worker_single_submits.py [--jobs 200] [--rounds 10] [--against CHECKOUT/.venv/bin/python]

The clock stops when the last result is recorded. The other rows are submits alone, without a worker, and an echo on the
same HTTP stack. `milliseconds` is the processor time of the coordinator per job, or of the echo per request. With
`--against`, the pool of another checkout takes turns with this one, so that both run under the same conditions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from plain_http import BareClient, echo_server
from support.coordinator import CoordinatorProcess, family_of
from support.waiting import wait_until
from support.worker import WorkerProcess

#: For each row of the table: seconds, and processor seconds.
Figures = dict[str, tuple[float, float]]


def processor_seconds(pid: int) -> float:
    """The processor time that a process and its children have used."""
    ticks = 0
    for each in family_of(pid):
        ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(pid: int, jobs: int, client: BareClient, path: str, until: Callable[[], bool]) -> tuple[float, float]:
    """The seconds for this many requests, one after another, and the processor seconds of the process."""
    used, began = processor_seconds(pid), time.monotonic()
    for _ in range(jobs):
        status, _ = client("POST", path, {"run": "true"})
        assert status in (200, 201), status
    wait_until(until, 300, every=0.02)
    return time.monotonic() - began, processor_seconds(pid) - used


def serve_rounds(jobs: int) -> None:
    """Run one round per line on standard input, with the code of the checkout whose Python this is."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        echo, echo_pid = stack.enter_context(echo_server())
        clients, pids = {}, {}
        for name in ("alone", "executed"):
            (folder / name).mkdir()
            server = stack.enter_context(CoordinatorProcess(folder / name))
            assert server.process is not None
            clients[name], pids[name] = BareClient(server.url, server.token("submitter")), server.process.pid
        stack.enter_context(WorkerProcess(folder, server, slots=2))

        def ended() -> bool:
            asked = [clients["executed"]("GET", f"/v1/jobs?state={state}&limit=1") for state in ("queued", "running")]
            return not any(json.loads(body)["items"] for _, body in asked)

        for _ in sys.stdin:
            figures = {
                "echo": measured(echo_pid, jobs, BareClient(echo, "x"), "/echo", lambda: True),
                "submits alone": measured(pids["alone"], jobs, clients["alone"], "/v1/runs", lambda: True),
                "submits, executed": measured(pids["executed"], jobs, clients["executed"], "/v1/runs", ended),
            }
            print(json.dumps(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200, help="jobs per round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--against", metavar="PYTHON", help="the Python of another checkout")
    parser.add_argument("--serve-rounds", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_rounds:
        return serve_rounds(options.jobs)
    pools = {}
    for whose, python in {"this": sys.executable, "other": options.against}.items():
        if python:
            command = [python, __file__, "--serve-rounds", "--jobs", str(options.jobs)]
            pools[whose] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rounds: dict[str, list[Figures]] = {whose: [] for whose in pools}
    for number in range(options.rounds + 1):  # the first round only warms up
        for whose, pool in pools.items():
            assert pool.stdin is not None
            assert pool.stdout is not None
            print(number, file=pool.stdin, flush=True)
            rounds[whose].append(json.loads(pool.stdout.readline()))
    for pool in pools.values():
        pool.communicate()
    print(f"{'median of the rounds':<22} {'checkout':<10} {'per second':>10} {'milliseconds':>13}")
    for what in rounds["this"][0]:
        for whose, figures in rounds.items():
            seconds, used = (statistics.median(each[what][at] for each in figures[1:]) for at in (0, 1))
            print(f"{what:<22} {whose:<10} {options.jobs / seconds:>10,.0f} {1000 * used / options.jobs:>13.2f}")
    return None


if __name__ == "__main__":
    main()
