"""Each part says who made it, under which licence, and for which Pythons; and each wheel carries the licence."""

from __future__ import annotations

import hashlib
import tomllib
from typing import Any

import pytest

from support.documents import ROOT

PARTS = ("shared", "coordinator", "worker", "cli")
#: The Apache License 2.0 as the Apache Software Foundation publishes it, with its appendix.
APACHE_2_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
PYTHONS = {"3.11", "3.12", "3.13", "3.14"}


def project(part: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / part / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def test_the_licence_is_unaltered() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2_SHA256
    assert "Copyright 2026 The deborgen authors" in (ROOT / "NOTICE").read_text("utf-8")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_its_own_copy_of_the_licence(part: str) -> None:
    """A wheel is built from the part's folder alone."""
    said = project(part)
    assert (said["license"], said["license-files"]) == ("Apache-2.0", ["LICENSE", "NOTICE"])
    for name in said["license-files"]:
        assert (ROOT / part / name).read_bytes() == (ROOT / name).read_bytes(), name
        assert not (ROOT / part / name).is_symlink(), "a link breaks where the folder is copied alone"


@pytest.mark.parametrize("part", PARTS)
def test_the_metadata_of_a_part_is_complete(part: str) -> None:
    said = project(part)
    assert said["authors"] == [{"name": "The deborgen authors"}]
    assert said["description"].endswith(".")
    assert (ROOT / part / said["readme"]).is_file()
    assert said["requires-python"] == ">=3.11"
    assert said["keywords"] == sorted(said["keywords"])
    assert said["urls"].keys() == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert said["urls"] == project("shared")["urls"]
    marker = "Programming Language :: Python :: "
    assert {word.removeprefix(marker) for word in said["classifiers"] if word.startswith(marker)} == PYTHONS
    assert said["classifiers"] == sorted(said["classifiers"])
