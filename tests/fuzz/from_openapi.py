"""Requests that schemathesis makes from the published contract, with the tokens of all roles."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok

from deborgen_shared import contract, headers
from deborgen_shared.states import Role
from fuzz.findings import Source, Target

#: JSON Schema cannot say everything, so that what is valid by the schema may be refused; see
#: tests/contract/http/test_openapi.py. What a request names need not exist, and its role need not be allowed to do it.
CONFIG = {
    "checks": {
        "positive_data_acceptance": {"expected-statuses": ["2xx", 304, 400, 401, 403, 404, 409, 413, 416, 422, 429]},
        "negative_data_rejection": {"expected-statuses": [400, 401, 403, 404, 405, 409, 411, 413, 415, 422, 429]},
        # It sends further requests of its own; the roles are tested in tests/contract/http/test_roles.py.
        "ignored_auth": {"enabled": False},
    },
}
#: This many requests are made for each call before the next call has its turn.
EXAMPLES = 10
#: Making these requests takes much processor time, which the requests of the other sources need too.
PAUSE_SECONDS = 0.3


class Over(BaseException):
    """The run has ended."""


def send_from_openapi(target: Target, name: str) -> None:
    """The work of a process: requests that conform to the contract, and requests that do not, until the run ends."""
    address = "http://{}:{}".format(*target.address)
    schema = schemathesis.openapi.from_url(
        address + contract.OPENAPI.path, config=schemathesis.Config.from_dict(CONFIG),
        headers={headers.AUTHORIZATION: f"Bearer {target.tokens['admin']}"},
    )  # fmt: skip
    operations: list[Any] = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    rng = random.Random(f"{target.seed} {name}")
    source = target.source(name)
    with contextlib.suppress(Over):
        while source.goes_on():
            operation = rng.choice(operations)
            role = rng.choice(list(Role))
            _try(source, operation, target.tokens[role], rng.randrange(2**32), address)
            target.stop.wait(PAUSE_SECONDS)


def _try(source: Source, operation: Any, token: str, number: int, address: str) -> None:
    """Make some requests of one call with one token. Of several that fail in the same way, the simplest is reported."""
    mode = schemathesis.GenerationMode.POSITIVE if number % 2 else schemathesis.GenerationMode.NEGATIVE
    last: list[bytes] = []

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_one(case: Any) -> None:
        if not source.goes_on():
            raise Over
        case.headers = {**(case.headers or {}), headers.AUTHORIZATION: f"Bearer {token}"}
        last[:] = [case.as_curl_command().encode(errors="replace")]
        answer = case.call(base_url=address, timeout=60)
        source.counts.answered(answer.status_code)
        case.validate_response(answer)

    try:
        try_one()
    except FailureGroup as group:
        for each in group.exceptions:
            source.found(f"{operation.label}: {each}", last[0], f"{operation.label} {type(each).__name__}")
    except Unsatisfiable:
        return  # nothing can be wrong in a request to this call
    except Exception as problem:
        source.found(
            f"{operation.label}: {problem!r}", last[0] if last else b"", f"{operation.label} {type(problem).__name__}"
        )
