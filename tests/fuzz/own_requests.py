"""The fuzzer's own requests: one process per role, on connections that stay open."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from deborgen_shared import contract, headers
from deborgen_shared.calls import JSON, Call
from deborgen_shared.errors import Code
from deborgen_shared.states import Role
from fuzz.attacks import Attack, Attacker
from fuzz.drafts import SECRET_VALUE
from fuzz.findings import Source, Target
from fuzz.http_client import Connection, HttpAnswer, Late, Malformed, NoAnswer
from fuzz.known import Known

#: At most this many requests are sent before their answers are read, and together they have at most this many bytes.
#: More could block: the coordinator reads no further request while its answer is not read.
PIPELINED = 12
PIPELINED_BYTES = 16_000
CONNECTIONS = 4
#: A claim may wait at the coordinator. The fuzzer does not: it disconnects after this many seconds.
CLAIM_PATIENCE = 1.0

_STATUS = {str(code): code.status for code in Code}


def send_requests(target: Target, name: str, role: Role) -> None:
    """The work of a process: spoiled requests of this role until the run ends."""
    source = target.source(name)
    tokens = {each: target.tokens[each] for each in Role}
    workers = (*target.worker_tokens, "nobody")
    attackers = [Attacker(f"{target.seed} {name}", role, tokens, Known(workers))]
    if role is Role.WORKER:
        attackers = [
            Attacker(f"{target.seed} {name} {own}", role, tokens | {Role.WORKER: token}, Known((own, *workers)))
            for own, token in target.worker_tokens.items()
        ]
    rng = random.Random(f"{target.seed} {name}")
    connections = [Connection(target.address) for _ in range(CONNECTIONS)]
    number = 0
    while source.goes_on():
        attacker, connection = rng.choice(attackers), rng.choice(connections)
        batch: list[Attack] = []
        most, size = rng.choice((1, 4, PIPELINED, PIPELINED)), 0
        while len(batch) < most:
            number += 1
            attack = attacker.attack(number)
            size += len(attack.data)
            if batch and (size > PIPELINED_BYTES or attack.call is contract.CLAIM):
                exchange(source, attacker.known, connection, batch)
                batch, size = [], len(attack.data)
            batch.append(attack)
            if attack.call is contract.CLAIM or size > PIPELINED_BYTES:
                break
        exchange(source, attacker.known, connection, batch)


def exchange(source: Source, known: Known, connection: Connection, batch: list[Attack]) -> None:
    """Send the requests, and judge their answers. Those that a closed connection left unanswered are sent again."""
    connection.send(b"".join(attack.data for attack in batch))
    was_fresh = connection.is_fresh
    for place, attack in enumerate(batch):
        waits = attack.call is contract.CLAIM
        try:
            began = time.monotonic()
            answer = connection.receive(attack.is_head, CLAIM_PATIENCE if waits else 60.0)
        except Late:
            connection.close()
            source.counts.add("requests")
            source.counts.add("unanswered")
            if not waits:
                source.found(f"no answer within {time.monotonic() - began:.0f} s", attack.data, "late")
            return
        except Malformed as problem:
            connection.close()
            source.found(str(problem), b"".join(each.data for each in batch), "malformed answer")
            return
        except NoAnswer as problem:
            connection.close()
            if len(batch) == 1 and was_fresh:
                source.counts.add("requests")
                source.counts.add("unanswered")
                source.found(str(problem), attack.data, "no answer")
            else:
                for each in batch[place:]:
                    exchange(source, known, connection, [each])
            return
        source.counts.answered(answer.status)
        if problem_of_answer := wrong(attack, answer, source.target):
            source.found(problem_of_answer, attack.data, f"{attack.call.path} {problem_of_answer[:40]}")
        if answer.status in (200, 201) and attack.is_addressed:
            known.learn(attack.call, attack.body, answer.body)
        if not answer.stays_open:
            for each in batch[place + 1 :]:
                exchange(source, known, connection, [each])
            return


def wrong(attack: Attack, answer: HttpAnswer, target: Target) -> str:
    """What is wrong with the answer; empty if nothing is."""
    status, body = answer.status, answer.body
    if status >= 500 and status != Code.UNAVAILABLE.status:
        return f"{status}: {body[:300]!r}"
    if attack.is_addressed and attack.call.by and status < 400 and not _may(attack.call, attack.role):
        return f"{status} although the token is of {attack.role}"
    is_ours = answer.headers.get(headers.CONTENT_TYPE.lower()) == JSON  # the log of a job may contain anything
    if is_ours and (b"Traceback" in body or target.folder.encode() in body):
        return f"{status}, and its body has a traceback or a path: {body[:300]!r}"
    is_assignment = attack.call is contract.CLAIM or attack.call is contract.FINISH
    if not is_assignment and SECRET_VALUE.encode() in body and SECRET_VALUE.encode() not in attack.data:
        return f"{status}, and its body has the value of a secret: {body[:300]!r}"
    return refusal_problem(status, answer.headers, body) if status >= 400 and not attack.is_head else ""


def _may(call: Call[Any], role: Role | None) -> bool:
    return role is not None and role in call.by


def refusal_problem(status: int, sent: dict[str, str], body: bytes) -> str:
    """How a refusal differs from the one shape that all have; empty if it does not."""
    if sent.get(headers.CONTENT_TYPE.lower()) != JSON:
        return f"{status} of the type {sent.get(headers.CONTENT_TYPE.lower())}: {body[:300]!r}"
    try:
        error: Any = json.loads(body)["error"]
        code, message, hint = error["code"], error["message"], error["hint"]
    except (ValueError, KeyError, TypeError):
        return f"{status} without the shape of a refusal: {body[:300]!r}"
    if _STATUS.get(code) != status or not message or not isinstance(hint, str):
        return f"{status} with the code {code!r} and the message {message!r}"
    return ""
