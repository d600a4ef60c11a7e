"""Give deborgen its next version: `make release VERSION=0.2.0` runs this. At the end it says what is left to do.

The version is in the file VERSION. Each part must build without the rest of the repository, so its pyproject.toml
and its `__version__` repeat it. This program writes all of them, and a test fails where one differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("shared", "coordinator", "worker", "cli")
UNRELEASED = "## Unreleased"

#: A version as people type it. Releases have three numbers, and a candidate for one has `rc1` at its end.
VERSION = re.compile(r"\d+\.\d+\.\d+(rc\d+)?")
#: The same without groups, as a part of the following patterns.
_NUMBER = VERSION.pattern.replace("(", "(?:")
#: Each has two groups: the text before a version, and the version. They find a part's own version, the version of a
#: part that it requires, and `__version__`.
_OWN = re.compile(rf'(^version = ")({_NUMBER})(?=")', re.MULTILINE)
_REQUIRED = re.compile(rf'("deborgen(?:-[a-z]+)?(?:\[[a-z,]+\])?==)({_NUMBER})(?=")')
_PYTHON = re.compile(rf'(^__version__ = ")({_NUMBER})(?=")', re.MULTILINE)

NEXT = """\
This is deborgen {version} now. Next:
  make install && make test && make fleet
  git commit -am "Release {version}"
  git tag v{version}
  make wheels
Push the commit and the tag when you have looked at them.
"""


class CannotRelease(Exception):
    """Says what is wrong, and what to do about it."""


def places(root: Path) -> list[Path]:
    """The files of the parts that repeat the version."""
    code = [file for part in PARTS for file in sorted((root / part / "src").glob("*/__init__.py"))]
    return [root / part / "pyproject.toml" for part in PARTS] + [
        f for f in code if _PYTHON.search(f.read_text("utf-8"))
    ]


def versions(root: Path) -> dict[str, set[str]]:
    """Which versions each file names. All of them must name the same one."""
    found = {"VERSION": {(root / "VERSION").read_text("utf-8").strip()}}
    for file in places(root):
        text = file.read_text("utf-8")
        named = {match[2] for pattern in (_OWN, _REQUIRED, _PYTHON) for match in pattern.finditer(text)}
        found[str(file.relative_to(root))] = named
    return found


def set_version(root: Path, version: str) -> None:
    """Write the version everywhere. The changelog stays as it is."""
    for file in places(root):
        text = file.read_text("utf-8")
        for pattern in (_OWN, _REQUIRED, _PYTHON):
            text = pattern.sub(rf"\g<1>{version}", text)
        file.write_text(text, "utf-8")
    (root / "VERSION").write_text(f"{version}\n", "utf-8")


def dated(changelog: str, version: str, day: date) -> str:
    """The changelog with the unreleased changes below the new version, and an empty *Unreleased* above it."""
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        raise CannotRelease(f"CHANGELOG.md has {version} already; choose the next version")
    before, heading, after = changelog.partition(f"{UNRELEASED}\n")
    if not heading:
        raise CannotRelease(f"CHANGELOG.md has no heading {UNRELEASED!r}; put what is new below one")
    if not after.partition("\n## ")[0].strip():
        raise CannotRelease(f"CHANGELOG.md has nothing below {UNRELEASED!r}; write what is new")
    return f"{before}{UNRELEASED}\n\n## {version} ({day.isoformat()})\n{after}"


def release(root: Path, version: str, day: date) -> None:
    """Make the working tree the release of that version. Nothing is written when anything is wrong."""
    if not VERSION.fullmatch(version):
        raise CannotRelease(f"{version!r} is not a version; type one like 0.2.0: make release VERSION=0.2.0")
    changelog = root / "CHANGELOG.md"
    text = dated(changelog.read_text("utf-8"), version, day)
    set_version(root, version)
    changelog.write_text(text, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Set the version of all parts, and date the changelog.")
    parser.add_argument("version", help="for example 0.2.0")
    version: str = parser.parse_args().version
    try:
        release(ROOT, version, datetime.now(UTC).date())
    except CannotRelease as error:
        sys.exit(str(error))
    print(NEXT.format(version=version), end="")


if __name__ == "__main__":
    main()
