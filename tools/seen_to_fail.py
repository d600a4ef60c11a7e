"""See every test of a fault fail: plant the fault that it guards against in the product, and run it.

python tools/seen_to_fail.py              every one, as `make seen-to-fail` does
python tools/seen_to_fail.py 10 11 49     those of these faults
python tools/seen_to_fail.py -k agent     those whose name or file has the word
python tools/seen_to_fail.py -j 8         eight at a time; without it, two for each processor

The faults, and the words that the tests must then say, are the table in tests/planted. No source is changed: each test
runs in an environment of its own, whose Python processes plant the fault when they import what it is about. This ends
with 1 if a test passes although its fault is planted, if it fails with other words, or if the fault was never planted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

#: Most of these tests use little of a processor: they wait for something that does not come, because of the fault.
FOR_EACH_PROCESSOR = 2
ROOT = Path(__file__).resolve().parent.parent
PARTS = ("shared", "coordinator", "worker", "cli")
sys.path.insert(0, str(ROOT / "tests"))

from planted.fault import Planted  # noqa: E402
from planted.hook import FAULT, FOLDER  # noqa: E402
from planted.table import every_row  # noqa: E402


class Pair(NamedTuple):
    """A fault, by its part of the table and its row there, and one of the tests that must notice it."""

    part: str
    number: int
    planted: Planted
    test: str


class Seen(NamedTuple):
    """Whether the test failed as told, why not, all that it said, and how long it took."""

    failed: bool
    why_not: str
    said: str
    seconds: float


#: A test must end this many seconds after its own time is up, or its process is ended.
MORE_SECONDS = 60.0


class Environment:
    """A virtual environment that has the product of this working tree, the same packages, and the hook for faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
        self.bin, self.faults = folder / ".venv" / "bin", folder / ".venv" / FOLDER
        (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
        (ours,) = (Path(sys.prefix) / "lib").glob("python*/site-packages")
        paths = [*(ROOT / part / "src" for part in PARTS), ROOT / "tests", ours]
        (packages / "planted.pth").write_text("\n".join([*map(str, paths), "import planted.hook"]) + "\n")
        for script in Path(sys.executable).parent.glob("deborgen*"):
            text = re.sub(r"^#!.*", f"#!{self.bin}/python", script.read_text(), count=1)
            (self.bin / script.name).write_text(text)
            (self.bin / script.name).chmod(0o755)

    def see(self, pair: Pair) -> Seen:
        """Plant the fault, run the test, and look how it ends."""
        began = time.monotonic()
        with self._planted(pair):
            try:
                code, said = self._run(pair.test, pair.planted.seconds)
            finally:
                self.tidy()
            absent = [
                patch.target
                for place, patch in enumerate(pair.planted.patches)
                if not (self.faults / str(place)).exists()
            ]
        why_not = ""
        if absent:
            why_not = f"{' and '.join(absent)} was never replaced"
        elif code != 1:
            why_not = "the test passes" if code == 0 else f"pytest ended with {code}"
        elif not re.search(pair.planted.says, said):
            why_not = f"the test does not say {pair.planted.says!r}"
        return Seen(not why_not, why_not, said, time.monotonic() - began)

    @contextlib.contextmanager
    def _planted(self, pair: Pair) -> Iterator[None]:
        modules = dict.fromkeys(patch.module for patch in pair.planted.patches)
        self.faults.mkdir()
        (self.faults / FAULT).write_text("\n".join([f"{pair.part} {pair.number}", *modules]) + "\n")
        try:
            yield
        finally:
            shutil.rmtree(self.faults)

    def _run(self, test: str, seconds: float) -> tuple[int, str]:
        words = ["-m", "pytest", "-p", "no:cacheprovider", "-x", "-q", "--timeout", str(seconds), f"tests/{test}",
                 "--basetemp", str(self.folder / ".run")]  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("DEBORGEN_", "PYTHON"))}
        try:
            done = subprocess.run(
                [self.bin / "python", *words], cwd=ROOT, capture_output=True, check=False,
                env=environment | {"DEBORGEN_LONG": "1"}, timeout=seconds + MORE_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            # The test is over, and a thread of the broken product waits on for something that never comes.
            said = (late.stdout or b"").decode(errors="replace")
            return 1 if re.search(r"^FAILED ", said, re.MULTILINE) else 2, said
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    def tidy(self) -> None:
        """A broken product leaves things behind: every container and process of this folder is ended."""
        mark = f"{self.folder}/"
        if shutil.which("podman"):
            shown = "{{.Id}}{{range .Mounts}} {{.Source}}{{end}}"
            listed = _output("podman", "ps", "-aq").split()
            for line in _output("podman", "inspect", "-f", shown, *listed).splitlines() if listed else ():
                if mark in line:
                    _output("podman", "rm", "-f", "-t", "0", line.split()[0])
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                where = f"{(process / 'cwd').readlink()}/ {(process / 'cmdline').read_text()}"
                if mark in where:
                    os.kill(int(process.name), signal.SIGKILL)


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def chosen(numbers: list[int], word: str) -> list[Pair]:
    """The pairs that were asked for, those that may take longest first."""
    pairs = [Pair(part, number, planted, test) for part, number, planted in every_row() for test in planted.tests]
    asked = [
        pair
        for pair in pairs
        if (not numbers or int((re.search(r"test_fault_(\d+)", pair.test) or [0, 0])[1]) in numbers)
        and word in f"{pair.test} {pair.planted.broken}"
    ]
    return sorted(asked, key=lambda pair: -pair.planted.seconds)


def see_all(pairs: list[Pair], jobs: int) -> Iterator[tuple[Pair, Seen]]:
    """See the pairs, so many at a time, each of these in an environment of its own; as they come to their end."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        free: queue.SimpleQueue[Environment] = queue.SimpleQueue()
        for _ in range(jobs):
            free.put(Environment(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seen-")))))

        def see(pair: Pair) -> tuple[Pair, Seen]:
            environment = free.get()
            try:
                return pair, environment.see(pair)
            finally:
                free.put(environment)

        for future in as_completed([pool.submit(see, pair) for pair in pairs]):
            yield future.result()


def show(pair: Pair, seen: Seen, loud: bool) -> None:
    words = [line for line in seen.said.splitlines() if re.match(r"E  |FAILED|ERROR", line)]
    print(f"{'seen' if seen.failed else 'NOT SEEN'}  {pair.test}  ({seen.seconds:.0f} s)")
    print(f"      with: {pair.planted.broken}")
    if seen.why_not:
        print(f"      but:  {seen.why_not}")
    if loud:
        print(seen.said)
    elif words:
        print(f"      says: {words[0][:160].removeprefix('E').strip()}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="See the tests of faults fail.")
    parser.add_argument("faults", nargs="*", type=int)
    parser.add_argument("-k", default="", dest="word")
    most = FOR_EACH_PROCESSOR * (os.cpu_count() or 1)
    parser.add_argument("-j", type=int, default=most, dest="jobs", help="how many tests run at a time")
    parser.add_argument("-v", action="store_true", dest="loud", help="show all that a test says")
    given = parser.parse_args()
    began = time.monotonic()
    pairs = chosen(given.faults, given.word)
    seen = 0
    for pair, result in see_all(pairs, max(1, min(given.jobs, len(pairs)))):
        seen += result.failed
        show(pair, result, given.loud)
    print(f"{seen} of {len(pairs)} seen to fail, in {time.monotonic() - began:.0f} s")
    return 0 if pairs and seen == len(pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
