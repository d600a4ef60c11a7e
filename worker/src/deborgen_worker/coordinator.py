"""The worker's client of the coordinator: one method per call, each with a deadline."""

from __future__ import annotations

from pathlib import Path

import msgspec

from deborgen_shared import contract
from deborgen_shared.client import blobs
from deborgen_shared.client.transport import Refused, Transport, decode, retry_after
from deborgen_shared.errors import Code
from deborgen_shared.messages import (
    Assignment,
    BlobDigests,
    CheckpointSaved,
    Claim,
    Claimed,
    CommitToPin,
    Finish,
    Finished,
    Heartbeat,
    HeartbeatAnswer,
    MissingBlob,
    ProgramEvent,
    ProgramEvents,
    Register,
    Registered,
    SaveCheckpoint,
    SavedFile,
)
from deborgen_shared.queries import AppendQuery, LeaveQuery

#: A heartbeat that is not answered within this many seconds is sent again.
HEARTBEAT_SECONDS = 15.0
#: The answer to a claim may take this many seconds longer than the claim waits at the coordinator.
CLAIM_SECONDS = 30.0


class NothingClaimed(msgspec.Struct):
    """The coordinator had no work. Claim again after this many seconds."""

    retry_after: float


class CoordinatorClient:
    """The calls of the worker with this name. All may raise `NoAnswer` or `Refused`, and all are idempotent."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport, self._name = transport, name

    def register(self, message: Register) -> Registered:
        return self._transport.call(contract.REGISTER, message, name=self._name)

    def claim(self, message: Claim) -> Claimed | NothingClaimed:
        seconds = message.wait_seconds + CLAIM_SECONDS
        reply = self._transport.ask(contract.CLAIM, message, seconds=seconds, name=self._name)
        if reply.status != contract.CLAIM.gives.status:
            return NothingClaimed(retry_after(reply.headers) or 0.0)
        return decode(contract.CLAIM, reply)

    def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        return self._transport.call(contract.HEARTBEAT, message, seconds=HEARTBEAT_SECONDS, name=self._name)

    def finish(self, message: Finish) -> Finished:
        return self._transport.call(contract.FINISH, message, name=self._name)

    def log(self, attempt: str, offset: int, data: bytes, session: str) -> int:
        """Send log bytes from the offset. Returns the log's size at the coordinator, even if it refused a gap."""
        job, _, number = attempt.partition("/")
        query = AppendQuery(offset=offset, session=session)
        try:
            return self._transport.call(contract.APPEND_LOG, data, query, job=job, number=number).size
        except Refused as refused:
            if refused.code == Code.LOG_GAP and isinstance(refused.details.get("size"), int):
                return int(refused.details["size"])
            raise

    def events(self, attempt: str, first: int, events: list[ProgramEvent | None], session: str) -> int:
        """Send a program's events. Returns how many the coordinator has, even if it refused a gap."""
        job, _, number = attempt.partition("/")
        body = ProgramEvents(session=session, events=events, first=first)
        try:
            return self._transport.call(contract.APPEND_EVENTS, body, job=job, number=number).count
        except Refused as refused:
            if refused.code == Code.EVENT_GAP and isinstance(refused.details.get("count"), int):
                return int(refused.details["count"])
            raise

    def pin(self, session: str, attempt: Assignment, repo: str, ref: str, commit: str) -> str:
        """The commit that the run of this attempt uses: this one, if the coordinator did not know one before."""
        body = CommitToPin(session=session, repo=repo, ref=ref, commit=commit)
        return self._transport.call(contract.PIN_COMMIT, body, job=attempt.job, number=attempt.number).commit

    def save_checkpoint(self, attempt: str, number: int, files: list[SavedFile], session: str) -> CheckpointSaved:
        job, _, attempt_number = attempt.partition("/")
        body = SaveCheckpoint(session=session, number=number, files=files)
        return self._transport.call(contract.SAVE_CHECKPOINT, body, job=job, number=attempt_number)

    def leave(self, session: str) -> None:
        self._transport.ask(contract.LEAVE, None, LeaveQuery(session=session), name=self._name)

    def missing(self, digests: list[str]) -> dict[str, MissingBlob]:
        """The blobs that the coordinator lacks, each with the place for its upload."""
        answer = self._transport.call(contract.MISSING_BLOBS, BlobDigests(digests=digests))
        return {each.sha256: each for each in answer.missing}

    def upload(self, path: Path, sha256: str, size: int, place: MissingBlob | None = None) -> None:
        blobs.upload(self._transport, path, sha256, size, place, resume=False)

    def download(self, sha256: str, target: Path) -> None:
        blobs.fetch(self._transport, sha256, target)
