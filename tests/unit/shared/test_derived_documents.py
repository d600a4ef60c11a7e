"""The generated parts of the documents match the code."""

from __future__ import annotations

import re

import pytest

import write_docs
from deborgen_shared.contract import CALLS
from deborgen_shared.errors import Code
from write_docs import DOCS, PART, WRITERS, unlisted, written

DOCUMENTS = sorted(path.name for path in DOCS.glob("*.md") if "<!-- make docs" in path.read_text("utf-8"))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_generated_parts_match_the_code(name: str) -> None:
    text = (DOCS / name).read_text("utf-8")
    assert written(text) == text, "run make docs"


def test_every_generator_has_a_part_in_some_document() -> None:
    parts = {words.split()[0] for name in DOCUMENTS for words in PART.findall((DOCS / name).read_text("utf-8"))}
    assert parts == set(WRITERS)


def test_every_opening_mark_has_a_closing_mark() -> None:
    for name in DOCUMENTS:
        text = (DOCS / name).read_text("utf-8")
        assert text.count("<!-- make docs: ") == 2 * len(PART.findall(text)), name


def test_every_call_is_in_one_table_with_its_roles() -> None:
    assert unlisted() == []
    text = (DOCS / "http-api.md").read_text("utf-8")
    rows = re.findall(r"^\| `([A-Z]+ /\S*)` \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    assert sorted(rows) == sorted(
        (f"{call.method} {call.path}", ", ".join(sorted(call.by)) or "no token", call.summary) for call in CALLS
    )


def test_every_error_code_has_a_meaning() -> None:
    assert all(code.meaning for code in Code)


def test_only_an_outdated_part_is_rewritten() -> None:
    text = "# Title\n\n<!-- make docs: exit-codes -->\nold\n<!-- make docs: end -->\n\nThe rest.\n"
    fresh = written(text)
    assert fresh.startswith("# Title\n\n<!-- make docs: exit-codes -->\n\n| code | meaning |")
    assert fresh.endswith("<!-- make docs: end -->\n\nThe rest.\n")
    assert "old" not in fresh
    assert written(fresh) == fresh


def test_a_call_missing_from_every_table_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stray:
        method, path = "GET", "/v1/strays"

    monkeypatch.setattr(write_docs, "CALLS", (*CALLS, Stray))
    with pytest.raises(SystemExit, match="GET /v1/strays"):
        write_docs.main()
