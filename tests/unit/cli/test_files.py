"""Which files are uploaded with a job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deborgen import files


def tree(base: Path, *paths: str) -> Path:
    for path in paths:
        file = base / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    return base


def names(base: Path, *entries: str) -> list[str]:
    return [file.path for entry in entries for file in files.collect(base, entry).files]


def test_a_folder_is_taken_whole_and_in_order(tmp_path: Path) -> None:
    tree(tmp_path, "data/b.txt", "data/a.txt", "data/deep/er/c.txt", "other.txt")
    assert names(tmp_path, "data/") == ["data/a.txt", "data/b.txt", "data/deep/er/c.txt"]


def test_git_and_ignored_files_are_not_uploaded(tmp_path: Path) -> None:
    tree(tmp_path, "src/a.py", "src/a.pyc", "src/.git/config", "src/build/x", "src/keep/y.log", "src/z.log")
    (tmp_path / "src/.gitignore").write_text("*.pyc\n/build/\n*.log\n!keep/*.log\n")
    assert names(tmp_path, "src") == ["src/.gitignore", "src/a.py", "src/keep/y.log"]


def test_the_deborgenignore_file_takes_precedence(tmp_path: Path) -> None:
    tree(tmp_path, "d/a.dat", "d/b.txt")
    (tmp_path / "d/.gitignore").write_text("*.dat\n")
    (tmp_path / "d/.deborgenignore").write_text("!a.dat\n*.txt\n.gitignore\n")
    assert names(tmp_path, "d") == ["d/a.dat"]


def test_ignore_files_above_the_folder_apply_too(tmp_path: Path) -> None:
    tree(tmp_path, "a/b/x.tmp", "a/b/y.txt", "a/b/secret/z.txt")
    (tmp_path / ".gitignore").write_text("*.tmp\n")
    (tmp_path / "a/.deborgenignore").write_text("b/secret/\n")
    assert names(tmp_path, "a/b") == ["a/b/y.txt"]


def test_a_file_named_in_the_job_file_is_uploaded_even_if_ignored(tmp_path: Path) -> None:
    tree(tmp_path, "model.bin")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    assert names(tmp_path, "model.bin") == ["model.bin"]


@pytest.mark.parametrize("line", ["data/", "data", "/data/", "d*/"])
def test_a_folder_named_in_the_job_file_is_uploaded_even_if_ignored(tmp_path: Path, line: str) -> None:
    """Otherwise it would be skipped silently, and every job of a sweep would run without its data."""
    tree(tmp_path, "data/a.csv", "data/sub/b.csv", "data/c.tmp")
    (tmp_path / ".gitignore").write_text(line + "\n")
    (tmp_path / "data/.gitignore").write_text("*.tmp\n.gitignore\n")
    assert names(tmp_path, "data/") == ["data/a.csv", "data/sub/b.csv"]
    assert names(tmp_path, ".") == [".gitignore"]


def test_a_link_to_itself_is_skipped_and_reported(tmp_path: Path) -> None:
    tree(tmp_path, "d/a")
    (tmp_path / "d/loop").symlink_to("loop")
    found = files.collect(tmp_path, "d")
    assert [file.path for file in found.files] == ["d/a"]
    assert found.skipped
    assert "d/loop" in found.skipped[0]


def test_the_whole_folder_of_the_job_file_can_be_named(tmp_path: Path) -> None:
    tree(tmp_path, "job.yml", "sub/x")
    assert names(tmp_path, ".") == ["job.yml", "sub/x"]


def test_executable_files_stay_executable(tmp_path: Path) -> None:
    tree(tmp_path, "run.sh", "data")
    (tmp_path / "run.sh").chmod(0o700)
    found = files.collect(tmp_path, ".").files
    assert {file.path: oct(file.mode) for file in found} == {"run.sh": "0o755", "data": "0o644"}


def test_links_to_files_are_followed_and_links_to_folders_are_reported(tmp_path: Path) -> None:
    tree(tmp_path, "real.txt", "folder/in.txt")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/link.txt").symlink_to(tmp_path / "real.txt")
    (tmp_path / "d/loop").symlink_to(tmp_path / "d")
    os.mkfifo(tmp_path / "d/pipe")
    collection = files.collect(tmp_path, "d")
    assert [file.path for file in collection.files] == ["d/link.txt"]
    assert collection.skipped == ["d/loop is a link to a folder", "d/pipe is not a regular file"]


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(files.FileMissing, match="does not exist"):
        files.collect(tmp_path, "nothing")


def test_a_pattern_takes_neither_git_nor_ignored_files(tmp_path: Path) -> None:
    for name in (".git/config", "src/a.py", "src/deep/b.py", "src/c.txt", "build/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("build/\n")
    assert [file.path for file in files.collect(tmp_path, "**/*.py").files] == ["src/a.py", "src/deep/b.py"]
    assert [file.path for file in files.collect(tmp_path, "src/*").files] == ["src/a.py", "src/c.txt", "src/deep/b.py"]
    assert [file.path for file in files.collect(tmp_path, "build/*.py").files] == ["build/d.py"], "its folder is named"
    assert ".git/config" not in {file.path for file in files.collect(tmp_path, "**").files}
    with pytest.raises(files.FileMissing, match="matches nothing"):
        files.collect(tmp_path, "none/*.py")
