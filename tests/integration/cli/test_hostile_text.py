"""Text of other people in every field that they can fill: no command lets it control the terminal."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from deborgen.cli import SECTIONS
from support.person import DEBORGEN, Person
from support.pool import Pool
from support.scripted_worker import ScriptedWorker

from .screen import Terminal

#: Clears the screen, sets the title, turns the text around, breaks lines and hides.
EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eturned\u2066\u2028\u2029\u200b\U000e0041\r\n\tend"
#: None of these characters may reach a terminal.
FORBIDDEN = {*EVIL} - {*"[2J]0;owned31mturned\x1b\r\n\tend"}
DEBORGEN_WORKER = [sys.executable, "-m", "deborgen_worker"]
DEBORGEN_COORDINATOR = [sys.executable, "-m", "deborgen_coordinator"]
#: This many commands run at the same time.
AT_ONCE = 8


class EvilWorker(ScriptedWorker):
    """A worker that fills every field with hostile text. It takes only jobs that require it."""

    def register(self, holding: list[str] | None = None) -> dict[str, Any]:
        super().register(holding)
        body = {"session": self.session, "labels": self.labels, "capacity": {"cpus": 8, "memory": 2**33, "gpus": 1}}
        words = {"hostname": EVIL, "version": EVIL[:60]}
        return dict(self.http.put(f"/v1/workers/{self.name}", json={**body, **words}).json())

    def say(self, attempt: str) -> None:
        metrics = {"load": 1, "gpus": [{"name": EVIL, "busy": 0.5}]}
        held = [{"attempt": attempt, "progress": 0.5, "message": EVIL, "began_seconds_ago": 1}]
        words = {"state": "limited", "reason": EVIL, "metrics": metrics}
        self.post("heartbeat", {"holding": held, **words}).raise_for_status()

    def end(self, attempt: str, outcome: str, **more: Any) -> None:
        blob = EVIL.encode()
        digest = hashlib.sha256(blob).hexdigest()
        self.http.put(f"/v1/blobs/{digest}", data=blob).raise_for_status()
        self.write_log(attempt, 0, blob).raise_for_status()
        self.send_events(attempt, [{"type": EVIL, "payload": {EVIL: EVIL}}]).raise_for_status()
        files = [{"path": f"out/{EVIL}".replace("\n", ""), "sha256": digest, "size": len(blob)}]
        said = {"reason": EVIL, "warnings": [EVIL], "image": EVIL, "artifacts": files, "log_size": len(blob)}
        assert self.finish(attempt, outcome, result={EVIL: EVIL}, **{**said, **more}) == "accepted"


def submit(pool: Pool, **more: Any) -> int:
    words = {"name": EVIL, "labels": {"project": EVIL}, "env": {"A": EVIL}, "requires": {"evil": "yes"}}
    return pool.submit(**{"run": f"echo {EVIL}", "sweep": {"cases": [{"word": EVIL}, {"word": "b"}]}, **words, **more})


def stories(pool: Pool, evil: EvilWorker) -> dict[str, str]:
    """Runs in every state, with hostile text in every field that other people can fill."""
    runs = {}
    for name in ("good", "bad", "running"):
        runs[name] = submit(pool)
        for assignment in evil.claim(2):
            evil.say(assignment["attempt"])
            if name == "good":
                evil.end(assignment["attempt"], "succeeded", reason="")
            elif name == "bad":
                evil.end(assignment["attempt"], "failed", exit_code=3)
    runs["waiting"] = submit(pool, requires={"gpu": EVIL})
    runs["canceled"] = submit(pool, requires={"gpu": EVIL})
    pool.admin.post(f"/v1/runs/{runs['canceled']}/cancel", json={"reason": EVIL}).raise_for_status()
    pool.until(submit(pool, run="echo", requires={}))
    return {name: str(run) for name, run in runs.items()}


def commands(runs: dict[str, str], person: Person) -> Iterator[list[str]]:
    """Every command that shows something."""
    text = json.dumps(EVIL.replace("\U000e0041", ""))
    person.write("evil\x1b[2J\u202e.yml", f"name: {text}\nrun: echo\nlabels: {{project: {text}}}\n")
    person.write("wrong\x9b.yml", f"run: echo\n{text}: 1\nlabels: {{{text}: 1}}\nfiles: [{text}]\nnetwork: {text}\n")
    good, bad, waiting = runs["good"], runs["bad"], runs["waiting"]
    yield from (["list"], ["workers"], ["workers", "evil"], ["events", good], ["events", bad])
    yield from (["show", good], ["show", f"{good}.1"], ["show", f"{bad}.1"], ["show", runs["running"]])
    yield from (["why", bad], ["why", waiting], ["why", runs["canceled"]])
    yield from (["results", good], ["results", good, "--csv"], ["results", good, "--json"])
    yield from (["artifacts", "list", good], ["artifacts", "pull", good, "-o", "pulled"])
    yield from (["logs", good], ["logs", "-f", bad], ["watch", good], ["watch", bad], ["wait", bad])
    yield from (["check", "evil\x1b[2J\u202e.yml"], ["submit", "evil\x1b[2J\u202e.yml"], ["check", "wrong\x9b.yml"])
    yield from (["doctor"], ["token", "list"], ["retry", bad], ["cancel", waiting, "--reason", EVIL])
    yield from (["secret", "list"], ["secret", "set", EVIL], ["secret", "remove", EVIL], ["token", "revoke", EVIL])
    yield from (
        ["images"],
        ["images", "remove", EVIL],
        ["ledger"],
        ["init", EVIL],
        ["run", "--name", EVIL, "true"],
        ["open"],
        ["schema"],
    )
    yield from (
        ["show", EVIL],
        ["workers", EVIL],
        [EVIL],
        ["login", f"http://{EVIL}"],
        ["help", EVIL],
        ["completion", EVIL],
    )


def test_every_command_is_tried_with_hostile_text(pool: Pool, admin: Person) -> None:
    """A new command fails here until `commands` names it."""
    runs = dict.fromkeys(("good", "bad", "running", "waiting", "canceled"), "1")
    tried = {words[0] for words in commands(runs, admin)}
    known = {name for section in SECTIONS.values() for name in section}
    assert known - tried == {"up", "down"}, "these two show nothing of other people"


def test_fault_95_no_text_of_other_people_can_control_the_terminal(pool: Pool, admin: Person) -> None:
    """Seen to fail when text from other people goes to the terminal as it is."""
    evil = EvilWorker(pool.coordinator, "evil", evil="yes", note=EVIL, os=EVIL)
    runs = stories(pool, evil)
    box = pool.workers["box"]
    every = [[str(DEBORGEN), *words] for words in commands(runs, admin)]
    every += [[*DEBORGEN_WORKER, verb, "--state-dir", str(box.state)] for verb in ("status", "history")]
    every += [[*DEBORGEN_COORDINATOR, "audit", "--data-dir", str(pool.coordinator.data_dir)]]
    for at in range(0, len(every), AT_ONCE):
        for shown in [Terminal(command, admin.folder, admin.environment) for command in every[at : at + AT_ONCE]]:
            # The screen refuses every control sequence except those of our own live view.
            shown.end()
            assert not FORBIDDEN.intersection(shown.raw.decode()), shown.screen.text
            assert shown.is_clean()
            assert "Traceback" not in shown.screen.text
            shown.close()
    evil.http.delete("/v1/workers/evil").raise_for_status()
    lines = box.log.read_text()
    assert not FORBIDDEN.intersection(lines)
    assert "\x1b" not in lines
    assert "\x1b" not in pool.coordinator.log.read_text()
    row = json.loads(admin.out("results", runs["good"], "--json"))["results"]["rows"][0]
    assert (row["word"], row[EVIL]) == (EVIL, EVIL), "in a pipe the text is as it was written"
