"""One job: its attempts and their phases, its log, its result, its artifacts, and why it waits or how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from flask import Response

from deborgen_coordinator.http.files import send_blob
from deborgen_coordinator.http.routes import CallRequest
from deborgen_coordinator.operations import blobs
from deborgen_coordinator.operations.attempts import artifacts, logs
from deborgen_coordinator.operations.jobs import look
from deborgen_coordinator.operations.jobs import why as explaining
from deborgen_coordinator.operations.runs import cancel
from deborgen_coordinator.web import log_text, words
from deborgen_coordinator.web.pages import PageRequest, action, page
from deborgen_coordinator.web.rendering import SAFE_HEADERS, HtmlAnswer
from deborgen_shared import headers
from deborgen_shared.messages import Attempt, JobDetail
from deborgen_shared.queries import ArtifactsQuery, LogQuery, NoQuery
from deborgen_shared.states import State

#: A page without JavaScript shows the log's last bytes, at most this many.
TAIL_BYTES = 48 * 1024
PIECE = 256 * 1024
#: A preview has at most this many bytes of a text, and an image of at most this size.
TEXT_BYTES, IMAGE_BYTES = 64 * 1024, 16 * 2**20
#: Pictures that browsers draw and that cannot contain programs, by the end of the name.
IMAGES = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
}  # fmt: skip
#: What a preview may do: nothing. Only our own pages show it in a frame.
PREVIEW_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'"
PLAIN = "text/plain; charset=utf-8"


class AttemptPhase(NamedTuple):
    """A part of an attempt's time. `start` and `width` are in percent of the whole."""

    name: str
    seconds: float
    start: float
    width: float


@page("/jobs/{job}")
def show_job(request: PageRequest) -> HtmlAnswer:
    ctx, (run, index) = request.ctx, request.job
    job = look.get_job(ctx, run, index)
    chosen = request.read(LogQuery).attempt
    attempt = next((each for each in job.history if each.number == chosen), job.history[-1] if job.history else None)
    number = attempt.number if attempt else None
    view = logs.view(ctx, run, index, number)
    start = max(0, view.size - TAIL_BYTES)
    tail = logs.read(ctx, run, index, view.attempt, start, TAIL_BYTES) if view.size else b""
    return request.render(
        "job.html",
        job=job,
        attempt=attempt,
        phases=phases(job, attempt, ctx.clock.wall()) if attempt else [],
        why=explaining.why(ctx, run, index),
        log=view,
        tail=log_text.plain(tail, is_whole=not start),
        artifacts=artifacts.of_job(ctx, run, index, number).items,
        shows_preview=_shows_preview,
        spec=words.indented(job.spec),
    )


def phases(job: JobDetail, attempt: Attempt, now: float) -> list[AttemptPhase]:
    """How an attempt's time was spent. What has not begun is left out."""
    before = [each.finished_at for each in job.history if each.number < attempt.number and each.finished_at]
    moments = [(State.QUEUED.value, (before[-1] if before else job.created_at).timestamp())]
    moments.append(("preparing", attempt.claimed_at.timestamp()))
    if attempt.started_at:
        began = attempt.started_at.timestamp()
        moments.append((State.RUNNING.value, began))
        if attempt.finished_at and attempt.seconds is not None:
            moments.append(("uploading", min(began + attempt.seconds, attempt.finished_at.timestamp())))
    end = attempt.finished_at.timestamp() if attempt.finished_at else now
    at = [moment for _, moment in moments]
    at = [max(at[: place + 1]) for place in range(len(at))]  # the clocks of two machines differ a little
    at.append(max(end, at[-1]))
    whole = (at[-1] - at[0]) or 1.0
    return [
        AttemptPhase(name, until - since, 100 * (since - at[0]) / whole, 100 * (until - since) / whole)
        for (name, _), (since, until) in zip(moments, pairwise(at), strict=True)
    ]


@action("/jobs/{job}/cancel")
def cancel_job(request: PageRequest) -> HtmlAnswer:
    run, index = request.job
    cancel.cancel_job(request.ctx, request.actor, run, index, "")
    return request.go(f"/jobs/{run}.{index}", done="cancellation")


@page("/jobs/{job}/log.txt")
def raw_log(request: PageRequest) -> Response:
    """The whole log as plain text."""
    run, index = request.job
    view = logs.view(request.ctx, run, index, request.read(LogQuery).attempt)
    sent = {**SAFE_HEADERS, headers.CONTENT_SECURITY_POLICY: PREVIEW_POLICY, headers.CONTENT_LENGTH: str(view.size)}

    def pieces() -> Iterator[bytes]:
        start = 0
        while start < view.size:
            piece = logs.read(request.ctx, run, index, view.attempt, start, min(PIECE, view.size - start))
            if not piece:
                return
            start += len(piece)
            yield piece

    body = request.streams.send(request.actor, pieces())
    return Response(body, 200, sent, content_type=PLAIN, direct_passthrough=True)


@page("/jobs/{job}/artifacts/{path}")
def download(request: PageRequest) -> Response:
    """An artifact as a file. The browser saves it, and never shows it as a page of this site."""
    run, index = request.job
    found = artifacts.find(request.ctx, run, index, request.names["path"], request.read(ArtifactsQuery).attempt)
    call = CallRequest(
        request.ctx, request.streams, request.actor, request.names, NoQuery(), None, b"", request.environ
    )
    return send_blob(call, found.sha256, found.path)


@page("/jobs/{job}/preview/{path}")
def preview(request: PageRequest) -> Response:
    """A picture, or the beginning of a text. Pages and programs are shown as text, too."""
    ctx, (run, index) = request.ctx, request.job
    found = artifacts.find(ctx, run, index, request.names["path"], request.read(ArtifactsQuery).attempt)
    kind = _image_type(found.path)
    most = found.size if kind else min(found.size, TEXT_BYTES)
    sent = {**SAFE_HEADERS, headers.CONTENT_SECURITY_POLICY: PREVIEW_POLICY}
    chunks = blobs.open_range(ctx, found.sha256, 0, most)
    if kind and found.size <= IMAGE_BYTES:
        body = request.streams.send(request.actor, chunks)
        return Response(body, 200, sent, content_type=kind, direct_passthrough=True)
    text = b"".join(chunks)[:TEXT_BYTES].decode("utf-8", "replace")
    if found.size > most:
        text += f"\n… and {words.size(found.size - most)} more: download the file to see them"
    return Response(text.replace("\0", "␀").encode(), 200, sent, content_type=PLAIN)


def _image_type(path: str) -> str | None:
    return IMAGES.get(path.rpartition(".")[2].lower())


def _shows_preview(path: str, size: int) -> str:
    """`image`, `text`, or nothing if a preview would show nothing readable."""
    ending = path.rpartition(".")[2].lower()
    if ending in IMAGES:
        return "image" if size <= IMAGE_BYTES else ""
    return "" if ending in BINARY else "text"


#: Files of which a text would show nothing readable.
BINARY = frozenset(
    "bin bz2 ckpt gz h5 hdf5 jar npy npz o parquet pdf pickle pkl pt pth so tar tgz whl xz zip zst".split()
)
