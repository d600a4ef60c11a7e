"""One version for all parts, in the file VERSION; `make release` writes it wherever it must be repeated."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from release import CannotRelease, dated, places, release, set_version, versions
from support.documents import ROOT, clone_into

CHANGELOG = "# Changelog\n\n## Unreleased\n\n- It flies.\n\n## 0.1.0 (2026-11-16)\n\n- It walks.\n"
FILES = {
    "VERSION", "shared/pyproject.toml", "coordinator/pyproject.toml", "worker/pyproject.toml", "cli/pyproject.toml",
    "shared/src/deborgen_shared/__init__.py", "worker/src/deborgen_worker/__init__.py", "cli/src/deborgen/__init__.py",
}  # fmt: skip


def everywhere(version: str) -> dict[str, set[str]]:
    return {name: {version} for name in FILES}


def test_every_file_names_the_same_version() -> None:
    (version,) = versions(ROOT)["VERSION"]
    assert versions(ROOT) == everywhere(version)


def test_each_part_requires_the_others_in_its_own_version() -> None:
    required = re.findall(
        r'"(deborgen[\w-]*)(?:\[\w+\])?(\W[^"]*)"',
        "".join(line for part in ("coordinator", "worker", "cli")
                for line in (ROOT / part / "pyproject.toml").read_text("utf-8").splitlines()
                if line.startswith(("dependencies", "up "))),
    )  # fmt: skip
    assert sorted(required) == sorted(
        (name, f"=={version}")
        for version in versions(ROOT)["VERSION"]
        for name in ("deborgen-shared", "deborgen-shared", "deborgen-shared", "deborgen-coordinator", "deborgen-worker")
    )


def test_the_changelog_begins_with_what_is_unreleased_and_dates_the_rest() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert [heading for heading in headings[1:] if not re.fullmatch(r"\S+ \(\d{4}-\d\d-\d\d\)", heading)] == []
    newest = headings[1].split()[0]
    assert versions(ROOT)["VERSION"] == {newest}


def test_make_release_sets_the_version_dates_the_changelog_and_says_what_is_next(tmp_path: Path) -> None:
    """In a copy of this tree. Seen to fail when one of the files keeps the old version."""
    copy = clone_into(tmp_path)
    changelog = copy / "CHANGELOG.md"
    changelog.write_text(changelog.read_text("utf-8").replace("## Unreleased\n", "## Unreleased\n\n- It flies.\n", 1))
    began = datetime.now(UTC).date()
    said = make_release(copy, "7.8.9")
    assert said.returncode == 0, said.stderr
    assert "deborgen 7.8.9" in said.stdout
    assert "git tag v7.8.9" in said.stdout
    assert versions(copy) == everywhere("7.8.9")
    before, after = (root.joinpath("CHANGELOG.md").read_text("utf-8").splitlines() for root in (ROOT, copy))
    added = [line for line in after if line not in before]
    assert added[0] in {f"## 7.8.9 ({day.isoformat()})" for day in (began, datetime.now(UTC).date())}
    assert added[1:] == ["- It flies."]
    again = make_release(copy, "7.8.9")
    assert (again.returncode, again.stdout) == (2, "")
    assert "CHANGELOG.md has 7.8.9 already" in again.stderr


def make_release(root: Path, version: str) -> subprocess.CompletedProcess[str]:
    words = [shutil.which("make") or "make", "release", f"VERSION={version}", f"PYTHON={sys.executable}"]
    # Run from `make test`, an inner make would say which folder it enters.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    return subprocess.run(words, cwd=root, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_unreleased_moves_below_the_new_version() -> None:
    assert dated(CHANGELOG, "0.2.0", date(2026, 12, 24)) == (
        "# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-12-24)\n\n- It flies.\n\n## 0.1.0 (2026-11-16)\n\n- It walks.\n"
    )


@pytest.mark.parametrize(
    ("changelog", "version", "why"),
    [
        (CHANGELOG, "0.1.0", "has 0.1.0 already"),
        (CHANGELOG, "", "is not a version"),
        (CHANGELOG, "v0.2.0", "is not a version"),
        (CHANGELOG, "0.2", "is not a version"),
        (CHANGELOG.replace("- It flies.\n", ""), "0.2.0", "write what is new"),
        (CHANGELOG.replace("## Unreleased\n", ""), "0.2.0", "has no heading '## Unreleased'"),
    ],
)
def test_a_release_that_cannot_be_right_changes_nothing(tmp_path: Path, changelog: str, version: str, why: str) -> None:
    for file in (ROOT / "VERSION", *places(ROOT)):
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    set_version(tmp_path, "0.1.5")
    with pytest.raises(CannotRelease, match=why):
        release(tmp_path, version, date(2026, 12, 24))
    assert (tmp_path / "CHANGELOG.md").read_text() == changelog
    assert versions(tmp_path) == everywhere("0.1.5")
