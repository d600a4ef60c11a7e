"""Write the parts of the documents that derive from the code: `make docs` runs this.

A document marks such a part, and the text between the marks is replaced:

    <!-- make docs: calls /v1/runs -->
    …
    <!-- make docs: end -->

The first word names one of the writers below, and the other words are its arguments. A test fails while a part differs
from the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cli_reference
from deborgen_coordinator.bridges.rabbitmq.settings import TABLE as RABBITMQ
from deborgen_coordinator.settings import TABLE as COORDINATOR
from deborgen_shared.contract import CALLS
from deborgen_shared.errors import Code
from deborgen_shared.jobfile.json_schema import schema
from deborgen_shared.jobfile.keys import KEYS
from deborgen_shared.settings import Table
from deborgen_worker.settings import TABLE as WORKER

DOCS = Path(__file__).resolve().parent.parent / "docs"
END = "<!-- make docs: end -->"
PART = re.compile(rf"<!-- make docs: (?!end)([^\n]+?) -->\n.*?{END}", re.DOTALL)
API = "http-api.md"


def table(titles: str, rows: Iterable[Iterable[str]]) -> str:
    """A table with these titles, which `|` separates."""
    lines = [f"| {titles} |", "| " + " | ".join("---" for _ in titles.split("|")) + " |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def calls(*paths: str) -> str:
    """The calls below these paths. If the document names several paths with which a call's path begins, the call
    belongs to the longest of them."""
    listed = _listed_paths((DOCS / API).read_text("utf-8"))
    rows = []
    for path in paths:
        for call in CALLS:
            if _table_of(call.path, listed) == path:
                roles = ", ".join(sorted(call.by)) or "no token"
                rows.append((f"`{call.method} {call.path}`", roles, call.summary))
    return table("call | roles | what it does", rows)


def _listed_paths(text: str) -> list[str]:
    """The paths that the tables of calls name."""
    return [path for words in PART.findall(text) if words.split()[0] == "calls" for path in words.split()[1:]]


def _table_of(path: str, listed: list[str]) -> str:
    return max((prefix for prefix in listed if path == prefix or path.startswith(f"{prefix}/")), key=len, default="")


def unlisted() -> list[str]:
    """The calls that belong to no table of the document."""
    listed = _listed_paths((DOCS / API).read_text("utf-8"))
    return [f"{call.method} {call.path}" for call in CALLS if not _table_of(call.path, listed)]


def codes() -> str:
    rows = [(str(code.status), f"`{code}`", code.meaning) for code in Code]
    return table("status | code | what it means", rows)


def coordinator_settings() -> str:
    return _with_defaults(COORDINATOR)


def rabbitmq_settings() -> str:
    return _with_defaults(RABBITMQ)


def _with_defaults(settings: Table[Any]) -> str:
    rows = [
        (f"`{row.flag}`", f"`{row.variable}`", f"`{row.default}`" if row.default else "(empty)", row.help)
        for row in settings.rows.values()
    ]
    return table("flag | variable | default | what it is", rows)


def worker_settings() -> str:
    rows = [
        (f"`{row.flag}`", f"`{row.variable}`", row.kind.words, row.default, row.help) for row in WORKER.rows.values()
    ]
    return table("flag | variable | kind | default | meaning", rows)


def job_keys() -> str:
    about_steps, _, default = schema()["properties"]["steps"]["description"].rstrip(".").partition(" Default: ")
    rows = [(f"`{key.name}`", key.summary, key.default) for key in KEYS]
    return table("key | what it says | default", [*rows, ("`steps`", about_steps, default)])


WRITERS: dict[str, Callable[..., str]] = {
    "calls": calls,
    "codes": codes,
    "commands": cli_reference.reference,
    "coordinator-settings": coordinator_settings,
    "exit-codes": cli_reference.exit_codes,
    "job-keys": job_keys,
    "rabbitmq-settings": rabbitmq_settings,
    "worker-settings": worker_settings,
}


def written(text: str) -> str:
    """The document with all its derived parts as the code has them now."""

    def part(found: re.Match[str]) -> str:
        name, *words = found[1].split()
        return f"<!-- make docs: {found[1]} -->\n\n{WRITERS[name](*words).strip()}\n\n{END}"

    return PART.sub(part, text)


def main() -> None:
    if missing := unlisted():
        raise SystemExit(f"no table of docs/{API} lists {', '.join(missing)}; add its path to a mark")
    for document in sorted(DOCS.glob("*.md")):
        before = document.read_text("utf-8")
        after = written(before)
        if after != before:
            document.write_text(after, "utf-8")
            print(f"docs/{document.name} was updated")


if __name__ == "__main__":
    main()
