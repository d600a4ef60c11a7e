"""The command and `deborgen up` on a system without Linux-only calls and files, such as macOS."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.person import Person
from support.waiting import wait_until
from support.without_linux import environment


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path / "home", **environment(tmp_path / "python"))
    yield person
    person.run("down")


def up(person: Person) -> dict[str, Any]:
    """Start `deborgen up`, and return its state once it is up."""
    person.err("up", "--detach", "--runner", "subprocess", code=0)
    found: dict[str, Any] = json.loads((person.home / "state/deborgen/up.json").read_text())
    return found


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_sweep_runs_and_its_results_come_back(home: Person) -> None:
    """Seen to fail when the children are started with `prctl` even where it does not exist."""
    state = up(home)
    home.write("in.txt", "a file of mine\n")
    text = "name: doubles\nfiles: [in.txt]\nsweep: {grid: {x: [1, 2]}}\n"
    text += "run: |\n  cat in.txt\n  cp in.txt out.txt\n"
    text += '  echo "{\\"y\\": $((2 * DEBORGEN_PARAM_X))}" > $DEBORGEN_RESULT\n'
    run = home.submit(f"{text}artifacts: [out.txt]\n")
    home.out("watch", run)
    assert [row["y"] for row in home.rows("results", run)] == ["2", "4"]
    assert home.out("logs", f"{run}.1") == "a file of mine\n"
    home.out("artifacts", "pull", f"{run}.2", "--into", "got")
    (got,) = (home.folder / "got").rglob("out.txt")
    assert got.read_text() == "a file of mine\n"
    home.out("down")
    assert not any(is_there(pid) for pid in (state["pid"], *state["children"].values()))
    for log in (home.home / "data/deborgen/up").glob("*.log"):
        text = log.read_text()
        assert "Traceback" not in text, text[text.index("Traceback") :]


def test_the_next_up_ends_the_leftovers_of_a_killed_one(home: Person) -> None:
    """Seen to fail when the command line of a process is read only from /proc."""
    left = up(home)
    os.kill(left["pid"], signal.SIGKILL)
    wait_until(lambda: not is_there(left["pid"]), what="it to die")
    assert all(is_there(pid) for pid in left["children"].values()), "no system call ends them with it"
    new = up(home)
    assert not any(is_there(pid) for pid in left["children"].values())
    assert new["children"] != left["children"]
    assert home.out("run", "--", "echo", "hello") == "hello\n"
