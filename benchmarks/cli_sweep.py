"""How long it takes to submit a sweep of 10,000 points from a file, and to print its results as CSV.

python benchmarks/cli_sweep.py [points]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.coordinator import Client, CoordinatorProcess

DEBORGEN = str(Path(sys.executable).parent / "deborgen")


def finish_all(session: Client, points: int) -> None:
    """Be a worker that finishes every job at once, with a result."""
    labels = {"runner.process": True}
    capacity = {"cpus": 65536, "memory": 1 << 50, "disk": 1 << 50}
    register = {"session": "s", "labels": labels, "capacity": capacity}
    session.put("/v1/workers/bench", json=register).raise_for_status()
    done = 0
    while done < points:
        claim = {"session": "s", "request_id": f"r{done}", "free": capacity, "max": 256, "wait_seconds": 5}
        answer = session.post("/v1/workers/bench/claim", json=claim)
        answer.raise_for_status()
        attempts = [given["attempt"] for given in answer.json()["assignments"]]
        held = [{"attempt": attempt} for attempt in attempts]
        session.post("/v1/workers/bench/heartbeat", json={"session": "s", "holding": held}).raise_for_status()
        results = [
            {"attempt": attempt, "outcome": "succeeded", "exit_code": 0, "seconds": 0.1, "result": {"error": 0.25}}
            for attempt in attempts
        ]
        session.post("/v1/workers/bench/finish", json={"session": "s", "results": results}).raise_for_status()
        done += len(attempts)


def timed(*command: str, environment: dict[str, str]) -> tuple[float, bytes]:
    start = time.perf_counter()
    done = subprocess.run([DEBORGEN, *command], env=environment, check=True, capture_output=True)
    return time.perf_counter() - start, done.stdout


def main() -> None:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name, CoordinatorProcess(Path(name)) as coordinator:
        folder = Path(name)
        (folder / "sim.py").write_text("print('x')\n")
        (folder / "sweep.yml").write_text(
            "run: python3 sim.py --seed ${{ seed }} --dt ${{ dt }}\nfiles: [sim.py]\n"
            f"sweep: {{grid: {{dt: [0.1, 0.01], seed: {{from: 1, to: {points // 2}}}}}}}\n"
        )
        environment = {
            **os.environ,
            "DEBORGEN_URL": coordinator.url,
            "DEBORGEN_TOKEN": coordinator.token("admin"),
            "XDG_STATE_HOME": name,
        }
        submit, run = timed("submit", str(folder / "sweep.yml"), environment=environment)
        finish_all(coordinator.client("worker", "bench"), points)
        results, table = timed("results", run.decode().strip(), "--csv", environment=environment)
        assert len(table.splitlines()) == points + 1
        print(f"{'what':<40}{'time':>10}{'target':>10}")
        print(f"{f'submit a sweep of {points:,} points':<40}{submit:>8.2f} s{'2 s':>10}")
        print(f"{'print its results as CSV':<40}{results:>8.2f} s{'1 s':>10}")


if __name__ == "__main__":
    main()
