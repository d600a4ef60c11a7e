"""Masks the values of secrets in what a job writes: each of their bytes becomes a star.

The length stays the same, so that a log is sent by offset as ever. A value is found as it is, as base64, and as JSON
and Python write it in quotes; and line by line, if it has several lines.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator

from deborgen_shared.messages import SHORTEST_SECRET
from deborgen_worker.logs import Log

STAR = b"*"
#: The program `base64` puts this many characters on a line.
BASE64_LINE = 76


class Mask:
    """Masks the values of one job's secrets."""

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = sorted({form for value in values for form in _forms(value)}, key=len)
        self._reach = len(self._forms[-1]) - 1 if self._forms else 0

    def apply(self, data: bytes) -> bytes:
        found = [place for form in self._forms for place in _places(data, form)]
        if not found:
            return data
        masked = bytearray(data)
        for start, end in found:
            masked[start:end] = STAR * (end - start)
        return bytes(masked)

    def apply_to_text(self, text: str) -> str:
        return self.apply(text.encode(errors="surrogateescape")).decode(errors="replace")

    @property
    def reach(self) -> int:
        """How many bytes before or after a byte can decide whether it is masked."""
        return self._reach

    def undecided(self, end: bytes) -> int:
        """How many of the last bytes may be the beginning of a value whose rest has not been written yet."""
        return max((_overlap(end[-len(form) + 1 :], form) for form in self._forms), default=0)


#: For jobs without secrets.
NO_MASK = Mask(())


def _places(data: bytes, form: bytes) -> Iterator[tuple[int, int]]:
    at = data.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = data.find(form, at + 1)


def _overlap(end: bytes, form: bytes) -> int:
    """The length of the longest end of the text with which the form begins."""
    at = end.find(form[:1])
    while at >= 0:
        if form.startswith(end[at:]):
            return len(end) - at
        at = end.find(form[:1], at + 1)
    return 0


def _forms(value: str) -> Iterator[bytes]:
    """The ways in which a program may write a value."""
    raw = value.encode()
    texts = {raw, json.dumps(value)[1:-1].encode(), json.dumps(value, ensure_ascii=False)[1:-1].encode()}
    texts |= {repr(value)[1:-1].encode(), *raw.splitlines()}
    for form in (*texts, *_base64(raw)):
        if len(form) >= SHORTEST_SECRET:
            yield form


def _base64(raw: bytes) -> Iterator[bytes]:
    """A value in base64, wherever in the encoded text it stands, and on several lines if it stands alone."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            # The characters at both ends also encode bits of the bytes around the value.
            encoded = encode(bytes(before) + raw)
            whole = (len(raw) + before) * 8 // 6
            yield encoded[-(-before * 8 // 6) : whole]
        for text in (raw, raw + b"\n"):
            encoded = encode(text)
            yield from (encoded[at : at + BASE64_LINE] for at in range(0, len(encoded), BASE64_LINE))


class MaskedLog:
    """A job's output with masked secrets. The end of the output may be held back until it is decided."""

    def __init__(self, log: Log, mask: Mask) -> None:
        self._log, self._mask = log, mask

    def size(self) -> int:
        return self._log.size()

    def decided(self, size: int) -> int:
        """How many of the first `size` bytes stay as they are, whatever the program writes next."""
        start = max(0, size - self._mask.reach)
        return size - self._mask.undecided(self._log.read(start, size - start))

    def read(self, offset: int, count: int) -> bytes:
        start = max(0, offset - self._mask.reach)
        around = self._log.read(start, offset - start + count + self._mask.reach)
        return self._mask.apply(around)[offset - start : offset - start + count]

    def forget(self, start: int, end: int) -> None:
        """Keep the bytes that decide about those before and after."""
        if end - start > 2 * self._mask.reach:
            self._log.forget(start + self._mask.reach, end - self._mask.reach)


class WithheldLog:
    """The output of a job whose secrets this worker no longer knows: nothing of it is sent."""

    def size(self) -> int:
        return 0

    def read(self, offset: int, count: int) -> bytes:
        return b""

    def forget(self, start: int, end: int) -> None:
        pass
