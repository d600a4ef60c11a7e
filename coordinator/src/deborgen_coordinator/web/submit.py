"""Submit a job file from the browser: paste or drop it, see its problems or its plan, and send it."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from deborgen_coordinator.operations import blobs
from deborgen_coordinator.operations.runs import submit as submitting
from deborgen_coordinator.web.job_text import CheckedText, ChosenFile, ChosenFiles, check_text
from deborgen_coordinator.web.pages import PageRequest, action, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared.contract import SUBMITTERS
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.jobfile.plan import plan
from deborgen_shared.jobfile.problems import JobFileInvalid

EXAMPLE = "run: echo hello\n"
_files = msgspec.json.Decoder(ChosenFiles)


@page("/submit", by=SUBMITTERS)
def form(request: PageRequest) -> HtmlAnswer:
    return _page(request, EXAMPLE, "job.yml", [])


@action("/submit")
def submit(request: PageRequest) -> HtmlAnswer:
    """Check the job file or, if the person said so, submit it."""
    text, source = request.field("text"), request.field("source")[:200] or "job.yml"
    chosen = _chosen(request)
    sends = request.field("do") == "submit"
    try:
        checked = check_text(request.ctx, request.actor, text, source, chosen)
    except JobFileInvalid as invalid:
        # The script checks the job file before it uploads the files and submits.
        meant = sends or request.field("meant") == "submit"
        consequence = "nothing was submitted" if meant else "it cannot be submitted"
        return _page(request, text, source, chosen, report=invalid.render(consequence))
    if not sends:
        return _page(request, text, source, chosen, checked=checked)
    body = msgspec.json.encode(checked.data)
    digest = hashlib.sha256(body).hexdigest()
    key = f"web.{request.field('once')[:100]}"
    run, _ = submitting.submit(request.ctx, request.actor, msgspec.json.decode(body), key, digest)
    return request.go(f"/runs/{run.id}")


def _chosen(request: PageRequest) -> list[ChosenFile]:
    try:
        return _files.decode(request.field("files") or "[]")
    except msgspec.DecodeError as problem:
        raise Refusal(Code.MALFORMED, f"the chosen files cannot be read: {problem}", "choose them again") from None


def _page(request: PageRequest, text: str, source: str, chosen: list[ChosenFile], **found: Any) -> HtmlAnswer:
    checked: CheckedText | None = found.get("checked")
    return request.render(
        "submit.html",
        text=text,
        source=source,
        chosen=chosen,
        files=msgspec.json.encode(chosen).decode(),
        report=found.get("report"),
        checked=checked,
        steps=plan(checked.jobfile) if checked else [],
        missing=_missing(request, checked.files) if checked else [],
    )


def _missing(request: PageRequest, files: list[ChosenFile]) -> list[ChosenFile]:
    """The files that the coordinator does not have yet."""
    lacking = blobs.find_missing(request.ctx, [file.sha256 for file in files])
    missing = {each.sha256 for each in lacking.missing}
    return [file for file in files if file.sha256 in missing]
