"""Write the parts of the documents that derive from the code: `make docs` does it.

A document marks such a part, and what stands between the marks is written anew:

    <!-- make docs: calls /v1/runs -->
    …
    <!-- make docs: end -->

The first word names one of the writers below, and the others are told to it. A test fails while a part differs from
the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import cli_reference
from deborgen_coordinator.settings import TABLE as COORDINATOR
from deborgen_shared.contract import CALLS
from deborgen_shared.errors import Code
from deborgen_shared.jobfile.json_schema import schema
from deborgen_shared.jobfile.keys import KEYS
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
    """The calls below these paths. Each call belongs to the longest path, of all that the document names, which it has
    as its beginning."""
    places = _places((DOCS / API).read_text("utf-8"))
    rows = []
    for path in paths:
        for call in CALLS:
            if _place(call.path, places) == path:
                roles = ", ".join(sorted(call.by)) or "no token"
                rows.append((f"`{call.method} {call.path}`", roles, call.summary))
    return table("call | roles | what it does", rows)


def _places(text: str) -> list[str]:
    """The paths that the tables of calls name."""
    return [path for words in PART.findall(text) if words.split()[0] == "calls" for path in words.split()[1:]]


def _place(path: str, places: list[str]) -> str:
    return max((place for place in places if path == place or path.startswith(f"{place}/")), key=len, default="")


def unlisted() -> list[str]:
    """The calls that no table of the document has a place for."""
    places = _places((DOCS / API).read_text("utf-8"))
    return [f"{call.method} {call.path}" for call in CALLS if not _place(call.path, places)]


def codes() -> str:
    rows = [(str(code.status), f"`{code}`", code.meaning) for code in Code]
    return table("status | code | what it means", rows)


def coordinator_settings() -> str:
    rows = [
        (f"`{row.flag}`", f"`{row.variable}`", f"`{row.default}`" if row.default else "(empty)", row.help)
        for row in COORDINATOR.rows.values()
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
        raise SystemExit(f"no table of docs/{API} has a place for {', '.join(missing)}: name its path in a mark")
    for document in sorted(DOCS.glob("*.md")):
        before = document.read_text("utf-8")
        after = written(before)
        if after != before:
            document.write_text(after, "utf-8")
            print(f"docs/{document.name} is written anew")


if __name__ == "__main__":
    main()
