"""What an idle worker costs: its processor time and memory, and those of its supervisor.

python benchmarks/worker_idle.py [--seconds 20]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.coordinator import CoordinatorProcess
from support.waiting import wait_until
from support.worker import WorkerProcess


def processes(worker: WorkerProcess) -> list[int]:
    """The worker, and the processes whose arguments name its state directory: the supervisor."""
    assert worker.process is not None
    found = [worker.process.pid]
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) not in found:
            try:
                words = (each / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(worker.state).encode() in words:
                found.append(int(each.name))
    return found


def cpu_seconds(pid: int) -> float:
    """The processor time that the process has used, in user and in kernel mode."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """The memory of the process. A page that several processes share is divided equally among them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with CoordinatorProcess(folder) as coordinator, WorkerProcess(folder, coordinator) as worker:
            wait_until(lambda: "idle, waiting for work" in worker.said(), 30)
            pids = processes(worker)
            before = sum(map(cpu_seconds, pids))
            time.sleep(options.seconds)
            used = sum(map(cpu_seconds, pids)) - before
            print(f"idle for {options.seconds:g} s, {len(pids)} processes")
            print(f"processor {used / options.seconds:>8.2%} of a core   (the goal is below 0.5 %)")
            print(f"memory    {sum(map(memory, pids)) / 1e6:>8.1f} MB            (the goal is below 60 MB)")


if __name__ == "__main__":
    main()
