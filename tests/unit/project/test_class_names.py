"""No two classes of the product share a name, apart from the pool's nouns (see the glossary in ARCHITECTURE.md)."""

from __future__ import annotations

import ast
from collections import Counter

from support.documents import ROOT

NOUNS = {"Artifact", "Attempt", "Checkpoint", "Claim", "Event", "Job", "Run", "Step", "Worker"}


def test_no_two_classes_share_a_name() -> None:
    found = Counter(
        node.name
        for part in ("shared", "coordinator", "worker", "cli")
        for file in (ROOT / part / "src").rglob("*.py")
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in found.items() if count > 1} == NOUNS
