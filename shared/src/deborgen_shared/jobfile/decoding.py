"""From bytes to text: UTF-8, of a bounded size, without control characters."""

from __future__ import annotations

import re

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_UNWANTED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def split_lines(text: str) -> list[str]:
    """The lines of a text, as the YAML parser counts them."""
    return _BREAK.split(text)


def line_starts(text: str) -> list[int]:
    """The index at which each line starts."""
    return [0, *(found.end() for found in _BREAK.finditer(text))]


def decode(text: str | bytes, source: str) -> str:
    """The text, when it is text of an acceptable size."""

    def refusal(message: str, hint: str) -> JobFileInvalid:
        return JobFileInvalid([Problem((), message, hint)], source)

    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="replace"))
    if size > limits.DOCUMENT_BYTES:
        message = f"the file has {size:,} bytes, and the limit is {limits.DOCUMENT_BYTES:,}"
        raise refusal(message, "data belongs in 'files', long lists in ranges")
    if isinstance(text, bytes):
        if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise refusal("the file is UTF-16, not UTF-8", "save it as UTF-8")
        if b"\0" in text:
            raise refusal("the file is binary, not text", "name the job file, as in job.yml")
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            message = f"byte 0x{error.object[error.start]:02x} in line {line} is not UTF-8"
            raise refusal(message, "save the file as UTF-8") from None
    text = text.removeprefix("\ufeff")
    if bad := _UNWANTED.search(text):
        before = split_lines(text[: bad.start()])
        message = f"the character U+{ord(bad[0]):04X} is not allowed in a job file"
        problem = Problem((), message, "remove it", line=len(before), column=len(before[-1]) + 1)
        raise JobFileInvalid([problem], source, split_lines(text))
    return text
