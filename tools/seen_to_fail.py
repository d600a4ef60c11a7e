"""See every test of a fault fail: break what it guards, in a copy of the project, and run it there.

python tools/seen_to_fail.py              every one, as `make seen-to-fail` does
python tools/seen_to_fail.py 10 11 49     those of these faults
python tools/seen_to_fail.py -k agent     those whose name or file has the word

What is broken, and what the test must then say, is the table in tests/chaos/planted.py. A test that passes although its
guard is broken, or fails with other words than told, makes this end with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("shared", "coordinator", "worker", "cli")
sys.path.insert(0, str(ROOT / "tests"))

from chaos.planted import PLANTED, Planted  # noqa: E402


class Copy:
    """The working tree in another place, with an environment of its own that has the same packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
        self.bin = folder / ".venv" / "bin"
        (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
        (ours,) = (Path(sys.prefix) / "lib").glob("python*/site-packages")
        # Only the path: what makes the original editable is not read from there, so the copy's own source is found.
        lines = [*(str(folder / part / "src") for part in PARTS), str(ours)]
        (packages / "copy.pth").write_text("\n".join(lines) + "\n")
        for script in [*Path(sys.executable).parent.glob("deborgen*")]:
            text = re.sub(r"^#!.*", f"#!{self.bin}/python", script.read_text(), count=1)
            (self.bin / script.name).write_text(text)
            (self.bin / script.name).chmod(0o755)

    def run(self, test: str, seconds: float) -> tuple[int, str]:
        """How the test ends, and what it says."""
        words = ["-m", "pytest", "-p", "no:cacheprovider", "-x", "-q", "--timeout", str(seconds), f"tests/{test}",
                 "--basetemp", str(self.folder / ".run")]  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("DEBORGEN_", "PYTHON"))}
        done = subprocess.run(
            [self.bin / "python", *words], cwd=self.folder, capture_output=True, text=True, check=False,
            env=environment | {"DEBORGEN_LONG": "1"},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def tidy(self) -> None:
        """A broken product leaves things behind: whatever runs, or is mounted, below this folder goes."""
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

    def see(self, planted: Planted, test: str) -> tuple[bool, str]:
        """Whether the test fails with the fault planted, in the words that are told; and what it said."""
        before = {edit.file: (self.folder / edit.file).read_text() for edit in planted.edits}
        for file, old, new in planted.edits:
            text = (self.folder / file).read_text()
            assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
            (self.folder / file).write_text(text.replace(old, new))
        try:
            code, said = self.run(test, planted.seconds)
        finally:
            for file, text in before.items():
                (self.folder / file).write_text(text)
            self.tidy()
        return code == 1 and re.search(planted.says, said) is not None, said


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def chosen(numbers: list[int], word: str) -> list[tuple[Planted, str]]:
    return [
        (planted, test)
        for planted in PLANTED
        for test in planted.tests
        if (not numbers or int(re.search(r"test_fault_(\d+)", test)[1]) in numbers)  # type: ignore[index]
        and word in f"{test} {planted.broken}"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="See the tests of faults fail.")
    parser.add_argument("faults", nargs="*", type=int)
    parser.add_argument("-k", default="", dest="word")
    parser.add_argument("-v", action="store_true", dest="loud", help="show all that a test says")
    given = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="seen-") as folder:
        copy = Copy(Path(folder))
        pairs = chosen(given.faults, given.word)
        for planted, test in pairs:
            began = time.monotonic()
            seen, said = copy.see(planted, test)
            wrong += not seen
            words = [line for line in said.splitlines() if re.match(r"E  |FAILED|ERROR", line)]
            print(f"{'seen' if seen else 'NOT SEEN'}  {test}  ({time.monotonic() - began:.0f} s)", flush=True)
            print(f"      with: {planted.broken}", flush=True)
            if given.loud:
                print(said)
            elif words:
                print(f"      says: {words[0][:160].removeprefix('E').strip()}", flush=True)
        print(f"{len(pairs) - wrong} of {len(pairs)} seen to fail")
    return 1 if wrong or not pairs else 0


if __name__ == "__main__":
    sys.exit(main())
