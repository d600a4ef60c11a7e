"""CONTRIBUTING.md and SECURITY.md name files, tests and things that exist."""

from __future__ import annotations

import re

import pytest

from support.documents import ROOT

PAGES = ("CONTRIBUTING.md", "SECURITY.md")
SOURCES = {
    "shared/…/": "shared/src/deborgen_shared/",
    "coordinator/…/": "coordinator/src/deborgen_coordinator/",
    "worker/…/": "worker/src/deborgen_worker/",
    "cli/…/": "cli/src/deborgen/",
}
#: These are made by the commands that the page describes.
MADE = {"dist/", "docs/NAME.md", ".venv"}


def text(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def in_code(page: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text(page))


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page: str) -> None:
    paths = [word for word in in_code(page) if "/" in word and " " not in word]
    for short, long in SOURCES.items():
        paths = [path.replace(short, long) for path in paths]
    known = [path for path in paths if path not in MADE and not path.startswith("storage/")]
    assert [path for path in known if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text(page)) if not link.startswith("https://")]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_module_named_by_its_file_exists() -> None:
    names = {path.name for folder in SOURCES.values() for path in (ROOT / folder).rglob("*.py")}
    assert [word for word in in_code("CONTRIBUTING.md") if re.fullmatch(r"\w+\.py", word) and word not in names] == []


def test_every_name_in_the_code_that_a_recipe_gives_exists() -> None:
    code = "".join(
        path.read_text("utf-8")
        for folder in (*SOURCES.values(), "tests/")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "test_contributing.py"
    )
    recipes = text("CONTRIBUTING.md").partition("## How to add")[2].partition("## A release")[0]
    named = {word for word in re.findall(r"`([A-Za-z_.]+)`", recipes) if not re.search(r"\.(py|md|toml|yml)$", word)}
    assert {"KEYS", "JobSpec.needs_key", "TRANSITIONS", "Work", "MATRIX", "CoordinatorMetrics", "PROOFS"} <= named
    missing = [
        word for word in sorted(named)
        if not re.search(rf"(?:class|def) {word.rpartition('.')[2]}\b|^\s*{word}\b.*=|\"{word}\"", code, re.MULTILINE)
    ]  # fmt: skip
    assert missing == []


def test_there_is_a_recipe_for_each_kind_of_addition() -> None:
    recipes = re.findall(r"^### (.*)$", text("CONTRIBUTING.md"), re.MULTILINE)
    assert recipes == [
        "A key of the job file", "A state", "A call", "A runner", "A metric", "A page of the dashboard",
        "A page of the documents",
    ]  # fmt: skip
