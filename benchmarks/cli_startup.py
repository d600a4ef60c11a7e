"""How long the command takes to answer, compared with a Python that does nothing, in the same run.

python benchmarks/cli_startup.py [rounds]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.coordinator import CoordinatorProcess

DEBORGEN = str(Path(sys.executable).parent / "deborgen")


def measure(command: list[str], environment: dict[str, str], rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return taken


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder, CoordinatorProcess(Path(folder)) as coordinator:
        environment = {
            **os.environ,
            "DEBORGEN_URL": coordinator.url,
            "DEBORGEN_TOKEN": coordinator.token("admin"),
            "XDG_STATE_HOME": folder,
        }
        session = coordinator.client("admin")
        for _ in range(50):
            session.post("/v1/runs", json={"run": "true"}).raise_for_status()
        print(f"{'command':<24}{'median':>10}{'best':>10}{'over Python':>12}")
        bare = 0.0
        for command in (["python", "-c", "pass"], ["deborgen", "--help"], ["deborgen", "list"]):
            program = {"python": sys.executable, "deborgen": DEBORGEN}[command[0]]
            taken = measure([program, *command[1:]], environment, rounds)
            median = statistics.median(taken)
            bare = bare or median
            text = " ".join(command)
            print(f"{text:<24}{median * 1000:>7.0f} ms{min(taken) * 1000:>7.0f} ms{(median - bare) * 1000:>9.0f} ms")
        print("target: deborgen --help below 300 ms")


if __name__ == "__main__":
    main()
