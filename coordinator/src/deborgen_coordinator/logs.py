"""The coordinator's own log on standard error: text for people, or one JSON object per line.

Every action is logged with its run, job, attempt, worker and lease as fields. Secrets never reach the log: requests are
logged by method and path only, and everything that looks like a token is masked.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time

import msgspec

from deborgen_shared.terminal import inert, inert_lines

_encode = msgspec.json.Encoder().encode

_TOKEN = re.compile(r"dbg_([a-z]+)_([A-Za-z0-9]+)_[A-Za-z0-9_-]+")
#: The match ends before a quote or a backslash, because the rest may belong to a line of JSON.
_BEARER = re.compile(r"(?i)(bearer\s+)[^\s\"\\]+")


def masked(text: str) -> str:
    """The text with the secret part of every token masked."""
    if "dbg_" in text:
        text = _TOKEN.sub(r"dbg_\1_\2_***", text)
    return _BEARER.sub(r"\1***", text)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info deborgen.leases lease expired job=42.7 attempt=42.7/2`"""

    def format(self, record: logging.LogRecord) -> str:
        start = f"{_timestamp(record)} {record.levelname.lower()} {record.name} "
        # One record may hold many lines, each a message with its fields: see `log_committed`.
        lines = getattr(record, "lines", None) or [(record.getMessage(), {})]
        text = "\n".join(start + _on_one_line(message, fields) for message, fields in lines)
        if record.exc_info:
            text += "\n" + inert_lines(self.formatException(record.exc_info))
        return masked(text)


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with the run, job, attempt, worker and lease as fields."""

    def format(self, record: logging.LogRecord) -> str:
        start = {"time": _timestamp(record), "level": record.levelname.lower(), "logger": record.name}
        if lines := getattr(record, "lines", None):
            return masked("\n".join(_encode({**start, "message": text, **fields}).decode() for text, fields in lines))
        line = {**start, "message": masked(record.getMessage())}
        if record.exc_info:
            line["traceback"] = masked(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def _on_one_line(message: str, fields: dict[str, object]) -> str:
    """The message on one line: a line break in it must not look like another log line, nor control a terminal."""
    spelled = message + "".join(f" {name}={value}" for name, value in fields.items())
    return inert(spelled.replace("\r", "\\r").replace("\n", "\\n"))


def _timestamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def configure(log_format: str, level: str) -> None:
    """Send all log records to standard error, in this format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.raiseExceptions = False
