"""The exact shape of every `--json` output. `GOLDEN=write pytest …` rewrites the golden files.

Fields may be added; if a field changes its meaning, the version goes up.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deborgen import __version__
from support.person import Person
from support.pool import Pool

from .conftest import pool_with_a_box

GOLDEN = Path(__file__).parent / "golden"

JOB = """
name: golden
labels: {project: thesis}
run: |
  echo x is ${{ x }}
  printf 'made' > out.txt
  printf '{"y": %s}' "$(( DEBORGEN_PARAM_X * 2 ))" > "$DEBORGEN_RESULT"
  exit ${{ code }}
artifacts: [out.txt]
resources: {cpus: 1, memory: 64MiB}
sweep: {cases: [{x: 1, code: 0}, {x: 2, code: 3}]}
"""

VARIABLE = {
    "seconds": "SECONDS", "cpu_seconds": "SECONDS", "peak_memory": "BYTES", "hostname": "HOST",
    "seq": "SEQ", "id": "ID", "disk": "BYTES", "progress": "PROGRESS",
}  # fmt: skip
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def steady(value: Any, key: str = "") -> Any:
    """The value with everything that differs from run to run replaced by its type."""
    if isinstance(value, dict):
        return {name: steady(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [steady(each, key) for each in value]
    if isinstance(value, str) and TIME.fullmatch(value):
        return "TIME"
    if key in VARIABLE and not (key == "id" and (isinstance(value, int) or "." in str(value))) and value is not None:
        return VARIABLE[key]
    return value.replace(__version__, "RELEASE") if isinstance(value, str) else value


@pytest.fixture(scope="module")
def new_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A fresh pool: the golden files describe its first runs."""
    with pool_with_a_box(tmp_path_factory.mktemp("golden")) as pool:
        yield pool


@pytest.fixture(scope="module")
def done(new_pool: Pool) -> Person:
    """A person whose first run has ended."""
    anna = new_pool.person("anna")
    anna.submit(JOB, "--wait", code=14)
    assert anna.out("list").splitlines()[1].startswith("1\t")
    return anna


@pytest.fixture(scope="module")
def admin(new_pool: Pool) -> Person:
    return new_pool.person("root", "admin")


COMMANDS = {
    "list": ["list", "--json"],
    "show-run": ["show", "1", "--json"],
    "show-job": ["show", "1.1", "--json"],
    "show-failed-job": ["show", "1.2", "--json"],
    "results": ["results", "1", "--json"],
    "results-best": ["results", "1", "--best", "y:max", "--json"],
    "artifacts": ["artifacts", "list", "1", "--json"],
    "why": ["why", "1.2", "--json"],
    "check": ["check", "job.yml", "--json"],
    "doctor": ["doctor", "--json"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_json_of_reading_commands(name: str, done: Person) -> None:
    compare(name, done.out(*COMMANDS[name]), done)


def test_the_json_of_events(done: Person) -> None:
    lines = [json.loads(line) for line in done.out("events", "1.1", "--json").splitlines()]
    compare("events", json.dumps(lines), done)


def test_the_json_of_workers_and_tokens(done: Person, admin: Person) -> None:
    workers = json.loads(done.out("workers", "--json"))
    for worker in workers["workers"]:
        # Resources and labels differ between machines.
        assert {"cpus", "memory"} <= worker["capacity"].keys()
        assert {"cpus", "memory"} <= worker["free"].keys()
        assert worker["labels"]["runner.process"] is True
        assert {"load", "memory_free", "disk_free"} <= worker["metrics"].keys()
        worker |= {"capacity": "AMOUNTS", "free": "AMOUNTS", "labels": "LABELS", "metrics": "METRICS"}
    compare("workers", json.dumps(workers), done)
    (one,) = workers["workers"]
    assert json.loads(done.out("workers", one["name"], "--json")).keys() == {"version", "worker"}
    tokens = json.loads(admin.out("token", "list", "--json"))
    tokens["tokens"] = [token for token in tokens["tokens"] if token["name"] == "anna"]
    compare("token-list", json.dumps(tokens), done)
    made = json.loads(admin.out("token", "create", "--role", "viewer", "--name", "gold", "--json"))
    assert made["token"].pop("token").startswith("dbg_viewer_")
    compare("token-create", json.dumps(made), done)


def test_the_json_of_changing_commands(done: Person) -> None:
    waiting = "run: ls\nrequires: {moon: full}\n"
    done.write("waiting.yml", waiting)
    compare("submit", done.out("submit", "waiting.yml", "--json"), done)
    compare("cancel", done.out("cancel", "last", "--json"), done)
    compare("retry", done.out("retry", "last", "--canceled", "--json"), done)
    done.out("cancel", "last")


def compare(name: str, text: str, person: Person) -> None:
    shown = json.dumps(steady(json.loads(text)), indent=2, ensure_ascii=False) + "\n"
    shown = re.sub(r"Python \d[\w.]*", "Python VERSION", shown.replace(person.environment["DEBORGEN_URL"], "URL"))
    path = GOLDEN / f"{name}.json"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(shown)
    assert shown == path.read_text(), f"{name}: the JSON has changed"
