"""Check that every test of a fault can fail: plant a bug that the test must find in the product, and run the test.

python tools/seen_to_fail.py              all tests, as `make seen-to-fail` does
python tools/seen_to_fail.py 10 11 49     the tests of these faults
python tools/seen_to_fail.py -k agent     the tests whose file, name or planted bug contains the word
python tools/seen_to_fail.py -j 8         eight at a time; by default two per processor

The table in tests/planted has the bugs, and patterns for the tests' output. No source is changed: each test runs in
an environment of its own, whose Python processes plant the bug when they import a module that it names. The exit
code is 1 if a test passes although its bug is planted, if its output does not match, or if the bug was never
planted.
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

#: Most of these tests use little processor time: they wait for something that the bug prevents.
TESTS_PER_PROCESSOR = 2
ROOT = Path(__file__).resolve().parent.parent
PARTS = ("shared", "coordinator", "worker", "cli")
sys.path.insert(0, str(ROOT / "tests"))

from planted.bug import Planted  # noqa: E402
from planted.hook import BUG, FOLDER  # noqa: E402
from planted.table import every_row  # noqa: E402


class Pair(NamedTuple):
    """A bug, by its part of the table and its row there, and one of the tests that must find it."""

    part: str
    number: int
    planted: Planted
    test: str


class Seen(NamedTuple):
    """Whether the test failed as expected, or why not, its output, and how long it took."""

    failed: bool
    why_not: str
    output: str
    seconds: float


#: How many seconds after its time limit the process of a test is killed.
MORE_SECONDS = 60.0


class Environment:
    """A virtual environment that has the product of this working tree, the same packages, and the hook for bugs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
        self.bin, self.bug_folder = folder / ".venv" / "bin", folder / ".venv" / FOLDER
        (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
        (ours,) = (Path(sys.prefix) / "lib").glob("python*/site-packages")
        paths = [*(ROOT / part / "src" for part in PARTS), ROOT / "tests", ours]
        (packages / "planted.pth").write_text("\n".join([*map(str, paths), "import planted.hook"]) + "\n")
        for script in Path(sys.executable).parent.glob("deborgen*"):
            text = re.sub(r"^#!.*", f"#!{self.bin}/python", script.read_text(), count=1)
            (self.bin / script.name).write_text(text)
            (self.bin / script.name).chmod(0o755)

    def see(self, pair: Pair) -> Seen:
        """Plant the bug, run the test, and see how it ends."""
        began = time.monotonic()
        with self._planted(pair):
            try:
                code, output = self._run(pair.test, pair.planted.seconds)
            finally:
                self.tidy()
            absent = [
                patch.target
                for number, patch in enumerate(pair.planted.patches)
                if not (self.bug_folder / str(number)).exists()
            ]
        why_not = ""
        if absent:
            why_not = f"{' and '.join(absent)} was never replaced"
        elif code != 1:
            why_not = "the test passes" if code == 0 else f"pytest ended with {code}"
        elif not re.search(pair.planted.says, output):
            why_not = f"the output does not match {pair.planted.says!r}"
        return Seen(not why_not, why_not, output, time.monotonic() - began)

    @contextlib.contextmanager
    def _planted(self, pair: Pair) -> Iterator[None]:
        modules = dict.fromkeys(patch.module for patch in pair.planted.patches)
        self.bug_folder.mkdir()
        (self.bug_folder / BUG).write_text("\n".join([f"{pair.part} {pair.number}", *modules]) + "\n")
        try:
            yield
        finally:
            shutil.rmtree(self.bug_folder)

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
            # The test has ended, but a thread of the broken product still waits.
            output = (late.stdout or b"").decode(errors="replace")
            return 1 if re.search(r"^FAILED ", output, re.MULTILINE) else 2, output
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    def tidy(self) -> None:
        """End every container and process that the broken product has left in this folder."""
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
    """The pairs that were asked for, with the longest time limits first."""
    pairs = [Pair(part, number, planted, test) for part, number, planted in every_row() for test in planted.tests]
    asked = [
        pair
        for pair in pairs
        if (not numbers or fault_number(pair.test) in numbers) and word in f"{pair.test} {pair.planted.broken}"
    ]
    return sorted(asked, key=lambda pair: -pair.planted.seconds)


def fault_number(test: str) -> int:
    """The number of the fault in the name of a test; 0 if it has none."""
    found = re.search(r"test_fault_(\d+)", test)
    return int(found[1]) if found else 0


def see_all(pairs: list[Pair], jobs: int) -> Iterator[tuple[Pair, Seen]]:
    """Check the pairs, `jobs` at a time, each in an environment of its own; yields each pair when it has ended."""
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
    words = [line for line in seen.output.splitlines() if re.match(r"E  |FAILED|ERROR", line)]
    print(f"{'seen' if seen.failed else 'NOT SEEN'}  {pair.test}  ({seen.seconds:.0f} s)")
    print(f"      with: {pair.planted.broken}")
    if seen.why_not:
        print(f"      but:  {seen.why_not}")
    if loud:
        print(seen.output)
    elif words:
        print(f"      says: {words[0][:160].removeprefix('E').strip()}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that the tests of faults fail when bugs are planted for them.")
    parser.add_argument("faults", nargs="*", type=int)
    parser.add_argument("-k", default="", dest="word")
    most = TESTS_PER_PROCESSOR * (os.cpu_count() or 1)
    parser.add_argument("-j", type=int, default=most, dest="jobs", help="how many tests run at a time")
    parser.add_argument("-v", action="store_true", dest="loud", help="show the whole output of each test")
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
