"""Images that the pool has built."""

from __future__ import annotations

from deborgen_coordinator.http.answers import HandlerAnswer
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations import images
from deborgen_shared import contract
from deborgen_shared import messages as m
from deborgen_shared.queries import ImagesQuery, NoQuery


@serves(contract.LIST_IMAGES)
def list_images(request: CallRequest[None, ImagesQuery]) -> m.Images:
    return images.list_images(request.ctx, request.query)


@serves(contract.REMOVE_IMAGE)
def remove_image(request: CallRequest[None, NoQuery]) -> HandlerAnswer:
    images.remove_image(request.ctx, request.actor, request.names["image"])
    return HandlerAnswer(204)
