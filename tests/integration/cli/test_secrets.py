"""Secrets, from the command to the environment of a job, and nowhere else."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from pathlib import Path

from support.person import Person
from support.pool import Pool

VALUE = "s3cr3t-of-anna-4711"


def set_secret(who: Person, name: str = "KEY", value: str = VALUE, *options: str) -> None:
    who.err("secret", "set", name, *options, stdin=f"{value}\n".encode(), code=0)


def everything_on_disk(folder: Path) -> bytes:
    """All bytes in the files below a folder."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_job_gets_its_secrets_and_its_log_does_not_show_them(anna: Person, pool: Pool) -> None:
    """Seen to fail when the worker does not mask, and when it writes the answer to a claim as it is."""
    set_secret(anna)
    script = (
        "run: |\n"
        '  echo plain $KEY; printf %s "$KEY" | base64; printf %s "$KEY" | sha256sum\n'
        '  echo "0.5 with $KEY" > $DEBORGEN_PROGRESS\n'
        '  echo "{\\"type\\": \\"told\\", \\"payload\\": {\\"key\\": \\"$KEY\\"}}" >> $DEBORGEN_EVENTS\n'
        '  echo "{\\"key\\": \\"$KEY\\"}" > $DEBORGEN_RESULT\n'
        "secrets: [KEY]\n"
    )
    run = anna.submit(script, "--wait")
    stars = "*" * len(VALUE)
    encoded = base64.b64encode(VALUE.encode()).decode()
    log = anna.out("logs", run)
    assert log.startswith(f"plain {stars}\n")
    assert log.splitlines()[-1].startswith(hashlib.sha256(VALUE.encode()).hexdigest())
    shown = log + anna.out("results", run, "--json") + anna.out("events", "--json") + anna.out("show", run, "--json")
    assert VALUE not in shown
    assert encoded.rstrip("=")[:20] not in shown
    assert stars in anna.out("results", run, "--json")
    assert VALUE.encode() not in everything_on_disk(pool.workers["box"].state), "the worker's disk"
    assert VALUE.encode() not in everything_on_disk(pool.coordinator.data_dir), "the coordinator's disk"
    ps = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True)
    assert VALUE.encode() not in ps.stdout


def test_secrets_are_listed_without_values_and_removed(anna: Person, admin: Person) -> None:
    set_secret(anna, "MINE")
    set_secret(admin, "OURS", VALUE, "--shared")
    listed = anna.rows("secret", "list")
    assert {("MINE", "anna"), ("OURS", "the pool")} <= {(row["name"], row["owner"]) for row in listed}
    assert VALUE not in anna.out("secret", "list", "--json")
    anna.err("secret", "remove", "MINE", code=0)
    assert "MINE" not in {row["name"] for row in anna.rows("secret", "list")}
    assert "there is no secret MINE of anna" in anna.err("secret", "remove", "MINE", code=6)
    assert "only an admin" in anna.err("secret", "remove", "OURS", "--shared", code=4)
    admin.err("secret", "remove", "OURS", "--shared", code=0)


def test_a_secret_that_does_not_exist_is_a_problem_at_its_line(anna: Person) -> None:
    (anna.folder / "job.yml").write_text("run: echo hi\nsecrets:\n  - MISSING_ONE\n")
    said = anna.err("submit", "job.yml", code=3)
    assert "job.yml:3:5: there is no secret 'MISSING_ONE' that anna may use" in said
    assert "deborgen secret set MISSING_ONE" in said


def test_a_value_that_cannot_be_a_secret_is_refused(anna: Person) -> None:
    assert "6 to 32,768 characters" in anna.err("secret", "set", "KEY", stdin=b"short\n", code=2)
    assert "not UTF-8" in anna.err("secret", "set", "KEY", stdin=b"\xff\xfe12345678\n", code=2)
    assert "a secret is named like an environment variable" in anna.err(
        "secret", "set", "NOT-A-NAME", stdin=b"longer value\n", code=2
    )


def test_a_file_is_taken_as_it_is(anna: Person) -> None:
    (anna.folder / "id").write_text("line one\nline two\n")
    anna.err("secret", "set", "SSH_KEY", "--file", "id", code=0)
    run = anna.submit('run: printf %s "$SSH_KEY" | wc -c\nsecrets: [SSH_KEY]\n', "--wait")
    assert anna.out("logs", run).strip() == "18"
