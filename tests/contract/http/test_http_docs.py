"""docs/http-api.md: its examples run as they stand, and show every route."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import deborgen_coordinator
from deborgen_shared.calls import Call
from deborgen_shared.contract import CALLS
from deborgen_shared.program_events import JOB_EVENT
from deborgen_shared.states import TERMINAL, State
from support.coordinator import CoordinatorProcess

DOCS = (Path(__file__).parents[3] / "docs" / "http-api.md").read_text()


def test_the_refusal_in_the_docs_is_the_real_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```json\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
    with CoordinatorProcess(tmp_path) as coordinator:
        assert coordinator.client("viewer").get("/v1/runs/99").json() == json.loads(shown)


def asked_for(call: Call[Any], log: str) -> bool:
    """Whether the log contains a successful request for the call."""
    path = re.sub(r"{\w+}", lambda m: ".+" if m[0] == "{path}" else "[^/ ]+", call.path)
    return bool(re.search(rf"gunicorn.access {call.method} {path} 2\d\d ", log))


def test_the_examples_run_as_they_stand_and_show_every_route(tmp_path: Path) -> None:
    script = "set -eu\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL))
    with CoordinatorProcess(tmp_path, log_level="debug") as coordinator:
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "URL": coordinator.url,
            "TOKEN": coordinator.token("submitter", "ada"),
            "ADMIN_TOKEN": coordinator.token("admin", "ada"),
            "WORKER_TOKEN": coordinator.token("worker", "desk-3"),
        }
        done = subprocess.run(
            ["bash", "-x"], input=script, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        coordinator.stop()
        log = coordinator.logged()
    assert [f"{call.method} {call.path}" for call in CALLS if not asked_for(call, log)] == []


def test_the_docs_list_every_type_of_event() -> None:
    """Every type that the coordinator's source records, and no other."""
    operations = Path(deborgen_coordinator.__file__).parent / "operations"
    source = "\n".join(path.read_text() for path in operations.rglob("*.py"))
    kinds = "commit|image|run|step|job|attempt|lease|result|worker|token|transition"
    recorded = set(re.findall(rf'"((?:{kinds})\.[a-z_]+)",', source)) | {JOB_EVENT}
    recorded |= {f"job.{state}" for state in (*TERMINAL, State.QUEUED)}
    rows = re.findall(r"^\| (`\w+\.\w+`(?:, `\w+\.\w+`)*) \| .+ \|$", DOCS, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == recorded
