"""How many unfinished uploads one person may have, and that they do not affect other people."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deborgen_coordinator.operations.context import Actor
from deborgen_coordinator.operations.uploads import MOST_UNFINISHED, STALE_SECONDS, Uploads
from deborgen_shared.errors import Code, Refusal
from support.in_process import InProcessCoordinator, person

ANNA, BOB = person("anna"), person("bob")
LIMIT = 1000


def digest(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


class Sender:
    """Sends parts of blobs to one coordinator."""

    def __init__(self, folder: Path) -> None:
        self._uploads = Uploads()
        self._folder = folder / "blobs" / "uploads"
        self.pool = InProcessCoordinator(folder, max_blob=LIMIT)

    def send(self, number: int, size: int = 1, by: Actor = ANNA) -> None:
        """Send some bytes of a blob, and not the last of them."""
        offset = self.stored(number, by)
        with self._uploads.admit(self.pool.ctx, by, digest(number), offset + size) as store:
            store.append(digest(number), offset, [b"x" * size], LIMIT + 1, lambda size, upload: None)

    def stored(self, number: int, by: Actor = ANNA) -> int:
        return self.pool.ctx.blobs.for_owner(f"{by.role}.{by.name}").offset(digest(number))

    def refusal(self, number: int, size: int = 1) -> str:
        with pytest.raises(Refusal) as refused:
            self.send(number, size)
        assert refused.value.code is Code.SLOW_DOWN
        assert refused.value.headers["Retry-After"]
        return refused.value.message

    def forget(self, number: int) -> None:
        """Let it look as if the last byte had come long ago."""
        (path,) = self._folder.rglob(f"{digest(number)}.part")
        then = time.time() - STALE_SECONDS - 1
        os.utime(path, (then, then))


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Sender]:
    made = Sender(tmp_path)
    yield made
    made.pool.stop()


def test_fault_92_a_person_keeps_only_a_few_unfinished_uploads(sender: Sender) -> None:
    """Seen to fail when any number of unfinished uploads is kept."""
    for number in range(MOST_UNFINISHED):
        sender.send(number)
    assert sender.refusal(MOST_UNFINISHED) == f"you have {MOST_UNFINISHED} unfinished uploads, and more are not kept"
    sender.send(0)
    assert sender.stored(0) == 2, "those that are kept go on"
    sender.send(MOST_UNFINISHED, by=BOB)
    assert (sender.stored(MOST_UNFINISHED), sender.stored(MOST_UNFINISHED, BOB)) == (0, 1)


def test_an_upload_that_got_no_bytes_for_long_makes_room_for_another(sender: Sender) -> None:
    for number in range(MOST_UNFINISHED):
        sender.send(number)
    sender.forget(3)
    sender.send(MOST_UNFINISHED)
    assert (sender.stored(3), sender.stored(4), sender.stored(MOST_UNFINISHED)) == (0, 1, 1)
    sender.refusal(MOST_UNFINISHED + 1)


def test_fault_92_the_unfinished_uploads_of_a_person_have_a_limit_but_the_largest_goes_on(sender: Sender) -> None:
    """Seen to fail when any number of unfinished uploads is kept."""
    sender.send(1, 600)
    sender.send(2, 400)
    assert sender.refusal(2, 1) == f"your unfinished uploads would have more than {LIMIT} bytes"
    assert sender.refusal(3, 1) == f"your unfinished uploads would have more than {LIMIT} bytes"
    sender.send(1, 300)
    assert (sender.stored(1), sender.stored(2)) == (900, 400)


def test_bytes_are_counted_before_they_arrive(sender: Sender) -> None:
    uploads = sender._uploads
    with uploads.admit(sender.pool.ctx, ANNA, digest(1), 900):
        assert "more than" in sender.refusal(2, 200)
        sender.send(2, 200, by=BOB)
    sender.send(2, 200)
