"""Hostile job files: as YAML through `deborgen check`, as JSON through a submit, and some of them on a real worker."""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from deborgen.cli import cli
from deborgen.errors import InvalidJob
from deborgen_shared import contract, headers
from deborgen_shared.calls import JSON, Call
from fuzz import hostile
from fuzz.findings import Source, Target
from fuzz.own_requests import refusal_problem
from support.person import Person

#: A check that takes longer than this many seconds is a finding.
CHECK_SECONDS = 20.0
#: Checks and jobs take much processor time, which the requests of the other sources need too.
PAUSE_SECONDS = 0.02
#: The share of job files that are checked by the command itself, in a process of its own.
IN_A_PROCESS = 0.005
#: The exit codes of `check`: valid, wrong usage, invalid.
EXPECTED_EXITS = (0, 2, 3)
#: This many hostile jobs may be queued or running on the real worker at a time.
MOST_UNFINISHED = 20

SCRIPTS = (
    "true", "exit 3", "echo hello", "printf '\\000\\377\\033[2J'", "head -c 300000 /dev/zero", "kill -9 $$",
    "kill -TERM $$", "sleep 0.2", "sleep 30", "exec >&- 2>&-", "nosuchprogram",
    "echo '{\"a\": NaN, \"b\": [1e999]}' > $DEBORGEN_RESULT", "echo '[' > $DEBORGEN_RESULT",
    "printf '\\377' > $DEBORGEN_RESULT", "mkdir -p $DEBORGEN_RESULT", "ln -s /etc/hostname out", "mkfifo out",
    "mkdir -p out/a/b/c; touch out/a/b/c/d", "touch 'out\n'", "touch $'\\xff' out", "sleep 60 & echo started",
    "(sleep 2; echo late) &", "cat", "cd ..; pwd", "rm -f .deborgen*", "ulimit -a",
    "for i in 1 2 3 4 5 6 7 8 9; do echo '{\"type\": \"a\", \"payload\": {}}'; done >> \"$DEBORGEN_EVENTS\"",
    "echo x >> \"$DEBORGEN_EVENTS\"", "echo 0.5 half > \"$DEBORGEN_PROGRESS\"",
    "head -c 100000 /dev/urandom > \"$DEBORGEN_PROGRESS\"", "trap '' TERM; sleep 20", "yes | head -c 200000",
    "dd if=/dev/zero of=out bs=1M count=3 2> /dev/null", "chmod 000 . ; exit 0", "touch -t 197001010000 out",
    "echo a > out; chmod 000 out", "read x",
)  # fmt: skip
ARTIFACTS = (
    "out", "out/*", "**", "*", "*a*a*a*a*a*a*b", "out/", "[a-z]*", "?ut", "nothing", {"path": "out", "when": "always"},
)  # fmt: skip
YAML_PIECES = (
    "run: true\n", "run: |\n  echo a\n", "run: >-\n  echo\n", "run: [echo, a]\n", "run: &a x\n", "env: *a\n",
    "<<: {run: x}\n", "? run\n: x\n", "- a\n", "---\n", "...\n", "%YAML 1.1\n", "%TAG ! x\n",
    "!!python/name:os.system x\n", "run: !!binary aGk=\n", "run: !x y\n", "\t", "\ufeff", "\0", "\x85", "\u2028",
    "run: 'x\n", 'run: "\\ud800"\n', 'run: "\\x00"\n', "a: b: c\n", "run: x\nrun: y\n", "{run: x", "[" * 200,
    "{a: " * 100, "steps:\n  - {id: a, run: x, needs: [a]}\n",
    "steps: [{id: a, run: x, needs: [b]}, {id: b, run: x, needs: [a]}]\n", "sweep: {grid: {a: {from: 0, to: 1e9}}}\n",
    "timeout: 1e99h\n", "timeout: .nan\n", "sweep: {grid: {a: {from: 1, to: 10, step: 1e-300}}}\n",
    "sweep: {grid: {a: [.nan, .inf, -.inf, ~]}}\n", "priority: 0x7fffffffffffffffffff\n", "env: {A=B: x}\n",
    "files: ['**/*', '../x', /etc/hostname, '']\n", "artifacts: ['*a*a*a*a*b', '[z-a]', '[!]x]', '']\n",
    "requires: {os: '*' }\n", "labels: {'': x, a b: y}\n", "image: 127.0.0.1:1/x\n", "image: '-v/:/x'\n",
    "resources: {cpus: 1e400, memory: -1, gpus: 0.5, disk: 1PiB}\n", "retry: {program: maybe, backoff: -1s}\n",
    "#" * 5000 + "\n",
    "x: &x [a,a,a,a,a,a,a]\ny: &y [*x,*x,*x,*x,*x,*x]\nz: &z [*y,*y,*y,*y,*y,*y]\nw: [*z,*z,*z,*z,*z,*z]\n",
    "run: ${{ a }}\n", "run: echo '${{ a }}'\n", "run: \"${{ \"\n",
    "sweep: {grid: {a: [1]}, cases: [{a: 2}], exclude: [{a: 1}]}\n", "name: " + "x" * 3000 + "\n",
    "run: " + "y" * 200_000 + "\n", "secrets: [A]\n", "network: host\n",
)  # fmt: skip


def job_file(rng: random.Random) -> dict[str, Any]:
    """A job file that a real worker may run: its script is odd but short, and cannot last."""
    body: dict[str, Any] = {
        "run": rng.choice(SCRIPTS), "timeout": rng.choice(("1s", "2s")), "max_attempts": rng.choice((1, 1, 2)),
        "resources": {"cpus": 0.5, "memory": "64MiB", "disk": "16MiB"}, "retry": {"backoff": "0s"},
    }  # fmt: skip
    more: dict[str, Any] = {
        "artifacts": rng.sample(ARTIFACTS, rng.randrange(1, 4)), "result": rng.choice(("out", "metrics.json", "out/x")),
        "env": {"A": hostile.text(rng), "LANG": "x", "PATH": "/usr/bin:/bin"}, "name": hostile.text(rng),
        "labels": {"project": hostile.text(rng)}, "sweep": {"grid": {"a": [hostile.text(rng), 1, 2.5, True]}},
    }  # fmt: skip
    return body | {key: more[key] for key in rng.sample(list(more), rng.randrange(3))}


def yaml_text(rng: random.Random) -> bytes:
    """The text of a job file with something odd in it."""
    match rng.randrange(4):
        case 0:
            text = "".join(rng.choice(YAML_PIECES) for _ in range(rng.randrange(1, 5))).encode(errors="surrogatepass")
        case 1:
            text = json.dumps(hostile.mutated(rng, job_file(rng)), ensure_ascii=False).encode(errors="surrogatepass")
        case 2:
            lines = [f"{key}: {json.dumps(value)}\n" for key, value in job_file(rng).items()]
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(YAML_PIECES))
            text = "".join(lines).encode(errors="surrogatepass")
        case _:
            text = b"run: true\n" + rng.randbytes(rng.randrange(1, 40))
    return text if rng.random() < 0.9 else text[: rng.randrange(len(text) + 1)]


def send_job_files(target: Target, name: str, home: str) -> None:
    """The work of a process: check hostile job files, submit others, and let the real worker run some."""
    source = target.source(name)
    rng = random.Random(f"{target.seed} {name}")
    person = Person(Path(home))
    submitter = Submitter(source)
    while source.goes_on():
        text = yaml_text(rng)
        if rng.random() < IN_A_PROCESS:
            _check_in_a_process(source, person, text)
        else:
            _check_here(source, text)
        submitter.submit(rng)
        target.stop.wait(PAUSE_SECONDS)


def _check_here(source: Source, text: bytes) -> None:
    """`deborgen check --offline -`, in this process."""
    began = time.monotonic()
    done = CliRunner().invoke(cli, ["check", "--offline", "-"], input=text)
    source.counts.add("checks")
    if done.exception is not None and not isinstance(done.exception, SystemExit | InvalidJob):
        source.found(f"check raised {done.exception!r}", text, f"check {type(done.exception).__name__}")
    if (took := time.monotonic() - began) > CHECK_SECONDS:
        source.found(f"check took {took:.1f} s", text, "slow check")


def _check_in_a_process(source: Source, person: Person, text: bytes) -> None:
    source.counts.add("checks")
    try:
        done = person.run("check", "--offline", "-", stdin=text)
    except subprocess.TimeoutExpired:
        source.found("the command check did not end within a minute", text, "slow check")
        return
    if done.returncode not in EXPECTED_EXITS or b"Traceback" in done.stderr:
        source.found(f"the command check ended with {done.returncode}: {done.stderr[-500:]!r}", text, "check command")


class Submitter:
    """Submits job files, and sees to it that few of them are unfinished."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._http = http.client.HTTPConnection(*source.target.address, timeout=60)
        self._unfinished: list[int] = []

    def submit(self, rng: random.Random) -> None:
        if len(self._unfinished) >= MOST_UNFINISHED:
            self._look(rng)
            return
        body = job_file(rng)
        if rng.random() < 0.5:
            body = hostile.mutated(rng, body)
        data = hostile.encoded(rng, body)
        status, answer = self._call(contract.SUBMIT, contract.SUBMIT.path, data)
        if status == 201:
            self._unfinished.append(json.loads(answer)["id"])

    def _look(self, rng: random.Random) -> None:
        """Ask how far a run is. Cancel it now and then: a job that no worker can take would wait for ever."""
        run = rng.choice(self._unfinished)
        status, answer = self._call(contract.GET_RUN, contract.GET_RUN.path.format(run=run))
        if status != 200:
            return
        jobs = json.loads(answer)["jobs"]
        if not jobs["queued"] and not jobs["running"]:
            self._unfinished.remove(run)
        elif rng.random() < 0.02:
            self._call(contract.CANCEL_RUN, contract.CANCEL_RUN.path.format(run=run), b"{}")

    def _call(self, call: Call[Any], path: str, data: bytes | None = None) -> tuple[int, bytes]:
        """Make a call, and judge its answer as any other."""
        source = self._source
        sent = {headers.AUTHORIZATION: f"Bearer {source.target.tokens['job-files']}", headers.CONTENT_TYPE: JSON}
        try:
            self._http.request(call.method, path, data, sent)
            answer = self._http.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as problem:
            self._http.close()
            source.found(f"{call.method} {path} failed: {problem!r}", data or b"", "no answer")
            return 0, b""
        source.counts.answered(answer.status)
        problem_of_answer = ""
        if answer.status >= 400:
            problem_of_answer = refusal_problem(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
        if problem_of_answer:
            source.found(f"{call.method} {path}: {problem_of_answer}", data or b"", problem_of_answer[:30])
        return answer.status, text
