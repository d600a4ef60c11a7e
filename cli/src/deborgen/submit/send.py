"""Uploads the files of a job file and submits it exactly once.

A problem that only the coordinator can find is shown with its line in the job file, like any other problem.
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
from deborgen.submit import commits
from deborgen.submit.read import NOT_SUBMITTED, PreparedJobFile, error_with_lines
from deborgen_shared import contract, messages
from deborgen_shared.client.blobs import digest_of
from deborgen_shared.jobfile.document import Document
from deborgen_shared.jobfile.problems import Problem

#: Opens a progress bar for a verb and a total number of bytes. Yields a function to call with the bytes just sent.
Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def request_body(prepared: PreparedJobFile) -> dict[str, Any]:
    """The body of the request: the job file, with its files replaced by digests. Reads every file once.

    Also stores the digests in `prepared`: the upload needs them.
    """
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
    prepared: PreparedJobFile,
    key: str,
    bar: Bar = lambda verb, total: nullcontext(lambda count: None),
    *,
    pins: bool = True,
) -> messages.Run:
    """Upload the missing files and submit. Sending it again with the same key returns the same run.

    With `pins`, the commits of repositories are looked up first. The body would then differ after the next push, so a
    key that is used again, by another call, must go without.
    """
    body = request_body(prepared)
    if pins and (problems := commits.pin(body)):
        raise error_with_lines(problems, prepared.document)
    if prepared.files:
        lacking = transfers.missing(connection, prepared.files)
        if lacking:
            # Let the coordinator refuse an invalid job file before its files are uploaded.
            check(connection, prepared, body, NOT_SUBMITTED)
        with bar("uploading", sum(file.size for file, _ in lacking)) as on_bytes:
            transfers.upload(connection, lacking, on_bytes)
    try:
        return connection.call(contract.SUBMIT, body, key=key)
    except InvalidJob as refusal:
        raise explained(refusal, prepared.document) from None


def check(connection: Connection, prepared: PreparedJobFile, body: dict[str, Any], consequence: str) -> list[str]:
    """The warnings that the coordinator would give. Raises if it would refuse the job file. Nothing is stored."""
    try:
        return connection.call(contract.CHECK, body).warnings
    except InvalidJob as refusal:
        raise explained(refusal, prepared.document, consequence) from None


#: One part of a path like `steps[0].run`: an index or a name.
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def explained(refusal: InvalidJob, document: Document | None, consequence: str = NOT_SUBMITTED) -> InvalidJob:
    """The refusal as an error that shows each of the coordinator's problems with its line in the job file."""
    found = refusal.details.get("problems")
    if not isinstance(found, list) or not found:
        return refusal
    problems = []
    for item in found:
        path = tuple(int(m[1]) if m[1] else m[2] for m in _PART.finditer(str(item.get("path", ""))))
        problems.append(Problem(path, str(item.get("message", "")), str(item.get("hint", ""))))
    return error_with_lines(problems, document, consequence)
