"""From a job file that was read to a run: its files uploaded, submitted exactly once.

What only the coordinator finds wrong is shown at its line in the person's file, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from deborgen import transfers
from deborgen.connection import Connection
from deborgen.errors import InvalidJob
from deborgen.preparation import NOT_SUBMITTED, Prepared, located
from deborgen_shared import contract, messages
from deborgen_shared.client.blobs import digest_of
from deborgen_shared.jobfile.document import Document
from deborgen_shared.jobfile.problems import Problem

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def wire(prepared: Prepared) -> dict[str, Any]:
    """The body of the submit: the job file with its files named by their digests. Reads every file once."""
    sources = [file.source for file in prepared.files]
    with ThreadPoolExecutor(max_workers=4) as pool:
        digests = dict(zip(sources, pool.map(digest_of, sources), strict=True))
    body = dict(prepared.data)
    if isinstance(body.get("steps"), list):
        body["steps"] = [dict(step) if isinstance(step, dict) else step for step in body["steps"]]
    for path, collection in prepared.collections.items():
        level = body["steps"][path[1]] if path else body
        collection.files = [replace(file, sha256=digests[file.source]) for file in collection.files]
        unique = {file.path: file for file in collection.files}
        level["files"] = [
            {"path": path, "sha256": file.sha256, "size": file.size, "mode": file.mode} for path, file in unique.items()
        ]
    return body


def send(
    connection: Connection,
    prepared: Prepared,
    key: str,
    bar: Bar = lambda verb, total: nullcontext(lambda count: None),
) -> messages.Run:
    """Upload what is missing and submit. Sent again under the same key, it is the same run."""
    body = wire(prepared)
    if prepared.files:
        wanted = transfers.missing(connection, prepared.files)
        if wanted:
            # What would be refused is refused before its files are on their way.
            ask(connection, prepared, body, NOT_SUBMITTED)
        with bar("uploading", sum(file.size for file, _ in wanted)) as seen:
            transfers.upload(connection, wanted, seen)
    try:
        return connection.call(contract.SUBMIT, body, key=key)
    except InvalidJob as refusal:
        raise explained(refusal, prepared.document) from None


def ask(connection: Connection, prepared: Prepared, body: dict[str, Any], outcome: str) -> list[str]:
    """What the coordinator would warn of. It stores nothing; what it would refuse raises."""
    try:
        return connection.call(contract.CHECK, body).warnings
    except InvalidJob as refusal:
        raise explained(refusal, prepared.document, outcome) from None


_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def explained(refusal: InvalidJob, document: Document | None, outcome: str = NOT_SUBMITTED) -> InvalidJob:
    """The coordinator's problems, each at its line in the person's file."""
    found = refusal.details.get("problems")
    if not isinstance(found, list) or not found:
        return refusal
    problems = []
    for item in found:
        path = tuple(int(m[1]) if m[1] else m[2] for m in _PART.finditer(str(item.get("path", ""))))
        problems.append(Problem(path, str(item.get("message", "")), str(item.get("hint", ""))))
    return located(problems, document, outcome)
