"""Checkpoints, which workers save."""

from __future__ import annotations

from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations.attempts import checkpoints
from deborgen_coordinator.operations.workers.sessions import AttemptId
from deborgen_shared import contract
from deborgen_shared import messages as m
from deborgen_shared.queries import NoQuery


@serves(contract.SAVE_CHECKPOINT)
def save(request: CallRequest[m.SaveCheckpoint, NoQuery]) -> m.CheckpointSaved:
    attempt = AttemptId(*request.job, request.names["number"])
    return checkpoints.save(request.ctx, request.actor, attempt, request.body)
