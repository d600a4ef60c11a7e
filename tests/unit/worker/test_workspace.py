"""Workspaces, results, artifacts and the cache: no path leads outside, and no link is followed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_shared.jobfile.model import ArtifactPattern, File, JobSpec
from deborgen_shared.messages import Assignment, Input
from deborgen_worker import artifacts, workspace
from deborgen_worker.cache import BlobCache
from deborgen_worker.folders import BLANK, OUTPUT, Folders, remove
from deborgen_worker.runners.protocol import CannotStart, Launch


def assignment(**fields: object) -> Assignment:
    defaults = {
        "attempt": "4.7/2", "job": "4.7", "number": 2, "spec": {"run": "true"}, "params": {}, "inputs": [],
        "secrets": {}, "timeout_seconds": 60.0, "lease_seconds": 60.0,
    }  # fmt: skip
    return Assignment(**{**defaults, **fields})  # type: ignore[arg-type]


def launch(folder: Path, spec: JobSpec, given: Assignment) -> Launch:
    return workspace.launch_of(given, spec, folder, pids=64, tmp_size=1 << 20)


def test_a_jobs_environment_has_its_id_and_its_parameters(tmp_path: Path) -> None:
    given_ = assignment(params={"seed": 3, "dt": 1e-4, "method": "rk 4", "fast": True})
    env = launch(tmp_path / "a", JobSpec(run="x", env={"A": "b"}), given_).env_from_now()
    assert env["DEBORGEN_JOB_ID"] == "4.7"
    assert env["DEBORGEN_ATTEMPT"] == "2"
    assert env["DEBORGEN_PARAM_SEED"] == "3"
    assert env["DEBORGEN_PARAM_METHOD"] == "rk 4"
    assert env["DEBORGEN_PARAM_FAST"] == "true"
    assert env["A"] == "b"
    assert float(env["DEBORGEN_PARAM_DT"]) == 1e-4
    assert int(env["DEBORGEN_DEADLINE"]) == pytest.approx(time.time() + 60, abs=5)


def test_a_plain_process_gets_nothing_of_the_workers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OWNER", "x")
    assert "SECRET_OF_OWNER" not in launch(tmp_path / "a", JobSpec(run="x"), assignment()).env


def test_inputs_of_a_step_and_of_a_swept_step_are_where_the_job_file_says(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("data")

    def fetch(_digest: str, target: Path) -> None:
        target.write_text("data")

    cache = BlobCache(tmp_path / "cache", 1 << 20, fetch)
    inputs = [
        Input(
            step="prepare", job="4.1", path="data/x.csv", target="inputs/prepare/data/x.csv", sha256="a" * 64, size=4
        ),
        Input(step="sweep", job="4.2", path="out.txt", target="inputs/sweep/2/out.txt", sha256="b" * 64, size=4),
        Input(step="sweep", job="4.3", path="out.txt", target="inputs/sweep/3/out.txt", sha256="c" * 64, size=4),
    ]
    given_ = assignment(inputs=inputs)
    spec = JobSpec(run="true")
    folders = Folders(tmp_path / "attempts", tmp_path / "spare")
    here = launch(folders.of("4.7/2"), spec, given_)
    workspace.lay_out(here, given_, spec, cache, folders)
    assert (here.workspace / "inputs/prepare/data/x.csv").read_text() == "data"
    assert (here.workspace / "inputs/sweep/2/out.txt").exists()
    assert (here.workspace / "inputs/sweep/3/out.txt").exists()


def test_a_job_of_a_loop_knows_its_phase_and_its_round(tmp_path: Path) -> None:
    env = launch(tmp_path / "a", JobSpec(run="x"), assignment(phase="verify", round=3)).env
    assert (env["DEBORGEN_PHASE"], env["DEBORGEN_ROUND"]) == ("verify", "3")
    assert "DEBORGEN_PHASE" not in launch(tmp_path / "a", JobSpec(run="x"), assignment()).env


def test_the_artifacts_of_a_round_are_laid_over_the_files_of_the_job(tmp_path: Path) -> None:
    """An artifact replaces a file of the same name and keeps its mode. A file may have become a folder, and a folder a
    file. A link is replaced, and never followed."""
    outside = tmp_path / "outside"
    outside.write_text("the owner's")
    files = {"run.sh": 0o755, "was_file": 0o644, "was_folder/a": 0o644, "other": 0o644}
    spec = JobSpec(run="x", files=[File(path=path, sha256="a" * 64, size=5, mode=mode) for path, mode in files.items()])
    made = ["run.sh", "was_file/b", "was_folder", "new/c", "link", "folder/d"]
    inputs = [Input(step="", job="4.7", path=path, target=path, sha256="b" * 64, size=8) for path in made]
    given_ = assignment(inputs=inputs, phase="verify", round=1)
    cache = BlobCache(
        tmp_path / "cache",
        1 << 20,
        lambda sha, target: void(target.write_text("files" if sha[0] == "a" else "artifact")),
    )
    folders = Folders(tmp_path / "attempts", tmp_path / "spare")
    here = launch(folders.of("4.7/2"), spec, given_)
    folders.make(here.folder, container=False)
    workspace.lay_out(here, given_, spec, cache, folders)
    found = {path: (here.workspace / path).read_text() for path in [*made, "other"]}
    assert found == {**dict.fromkeys(made, "artifact"), "other": "files"}
    assert (here.workspace / "run.sh").stat().st_mode & 0o777 == 0o755
    for link, target in (("link", outside), ("folder", tmp_path)):
        remove(here.workspace / link)
        (here.workspace / link).symlink_to(target)
    assert workspace.make_way(here.workspace, "link") == 0o644
    assert workspace.make_way(here.workspace, "folder/outside") == 0o644
    assert not (here.workspace / "link").is_symlink()
    assert not (here.workspace / "folder").is_symlink()
    assert outside.read_text() == "the owner's"
    with pytest.raises(CannotStart, match="belongs to deborgen"):
        workspace.make_way(here.workspace, ".deborgen/result.json")


def void(_result: object) -> None:
    """What a function returns that fetches a file."""


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "a\0b", "a\\b"])
def test_fault_64_a_path_that_leads_out_of_the_workspace_is_refused(tmp_path: Path, path: str) -> None:
    """Seen to fail when '..' is a name like any other."""
    with pytest.raises(CannotStart):
        workspace.target_path(tmp_path, path)


def test_a_clean_folder_is_reused_and_a_changed_one_is_not(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "attempts", tmp_path / "spare")
    cache = BlobCache(tmp_path / "cache", 1, lambda _sha, _target: None)
    inodes = []
    for number in range(4):
        given_ = assignment(attempt=f"1.{number + 1}/1")
        here = launch(folders.of(given_.attempt), JobSpec(run="true"), given_)
        workspace.lay_out(here, given_, JobSpec(run="true"), cache, folders)
        assert sorted(each.name for each in here.workspace.iterdir()) == [".deborgen"]
        inodes.append(here.workspace.stat().st_ino)
        (here.folder / "output").write_text("said")
        if number == 1:
            (here.workspace / "left").write_text("behind")
        assert folders.recycle(here.folder) == (number != 1)
        assert remove(here.folder)
        assert not here.folder.exists()
    assert inodes[0] == inodes[1]
    assert inodes[2] == inodes[3]


def test_a_reused_folder_reveals_nothing_about_the_attempt_before(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "attempts", tmp_path / "spare")
    cache = BlobCache(tmp_path / "cache", 1, lambda _sha, _target: None)

    def attempt(number: int, **params: Any) -> Launch:
        given_ = assignment(attempt=f"1.{number}/1", params=params)
        here = launch(folders.of(given_.attempt), JobSpec(run="true"), given_)
        workspace.lay_out(here, given_, JobSpec(run="true"), cache, folders)
        assert json.loads(params_of(here).read_bytes()) == params
        assert not (here.folder / OUTPUT).exists(), "it counts as started"
        return here

    def params_of(here: Launch) -> Path:
        return here.workspace / ".deborgen" / "params.json"

    def started(here: Launch, said: str) -> None:
        (here.folder / OUTPUT).write_text(said)
        (here.folder / OUTPUT).chmod(0o600)

    first = attempt(1, word="a long word that is not needed again")
    inode = params_of(first).stat().st_ino
    started(first, "")
    assert folders.recycle(first.folder)
    second = attempt(2, word="short")
    assert params_of(second).stat().st_ino == inode
    assert (second.folder / BLANK).read_bytes() == b""
    started(second, "said")
    (second.folder / BLANK).unlink()
    other = tmp_path / "other"
    other.hardlink_to(params_of(second))
    assert folders.recycle(second.folder)
    third = attempt(3, word="secret")
    assert "secret" not in other.read_text(), "a job could write to the parameters of a later one"
    assert not (third.folder / BLANK).exists(), "the output of the second attempt would be in that of the third"


@given(st.binary(max_size=200))
def test_whatever_a_job_writes_as_its_result_is_a_flat_object_or_a_warning(data: bytes) -> None:
    found, warnings = workspace.parse_result(data)
    assert found is not None or warnings


def test_nested_objects_are_flattened_and_lists_are_kept_as_text() -> None:
    data = b'{"a": {"b": 1, "c": {"d": null}}, "losses": [0.5, NaN, {"x": 1}], "empty": {}}'
    wanted = {"a.b": 1, "a.c.d": None, "losses": '[0.5, "NaN", {"x": 1}]', "empty": "{}"}
    assert workspace.parse_result(data) == (wanted, [])


def test_numbers_that_json_has_no_word_for_are_kept_as_their_names() -> None:
    data = b'{"a": NaN, "b": Infinity, "c": -Infinity, "d": 1e999, "e": {"f": -1e999}}'
    wanted = {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": "Infinity", "e.f": "-Infinity"}
    assert workspace.parse_result(data) == (wanted, [])


def test_two_entries_of_one_name_are_a_warning() -> None:
    found, warnings = workspace.parse_result(b'{"a.b": 1, "a": {"b": 2, "c": 3}}')
    assert found == {"a.b": 1, "a.c": 3}
    assert warnings == ["result entry 'a.b' left out: another entry has the same name"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[1]", "it is not a JSON object"),
        (b"oops", "it is not JSON (Expecting value: line 1 column 1 (char 0))"),
        (b" \n", "its file is empty"),
        (b'{"a": ' * 21 + b"1" + b"}" * 21, "more than 20 levels"),
        (b'{"a": "' + b"x" * 70_000 + b'"}', "larger than 64 KiB"),
        (b"{" * 5000, "not JSON"),
        (b'{"a": 1' + b"0" * 40 + b"}", "too large"),
        (b'{"a": "caf\\udce9"}', "not valid Unicode"),
        (b'{"a": ["caf\\udce9"]}', "not valid Unicode"),
        (b'{"caf\\udce9": 1}', "not valid Unicode"),
        (b'{"a": "\\u0000"}', "contains a NUL"),
        (json.dumps({str(at): 1 for at in range(4000)}).replace(": 1", ": 1E15").encode(), "written out"),
    ],
)
def test_a_bad_result_is_named(data: bytes, words: str) -> None:
    found, (warning,) = workspace.parse_result(data)
    assert found is None
    assert warning.startswith("result left out: ")
    assert words in warning


def test_progress_is_a_fraction_and_a_message(tmp_path: Path) -> None:
    own = tmp_path / ".deborgen"
    own.mkdir()
    (own / "progress").write_text("0.1 old\n0.42 epoch 3\n")
    assert workspace.progress_of(tmp_path) == (0.42, "epoch 3")
    (own / "progress").write_text("0.1 old\n" * 2000 + "0.9 new\n")
    assert workspace.progress_of(tmp_path) == (0.9, "new"), "the last line counts, however long the file is"
    (own / "progress").write_text("7 too much")
    assert workspace.progress_of(tmp_path) == (None, "7 too much")
    (own / "progress").unlink()
    (own / "progress").symlink_to("/etc/passwd")
    assert workspace.progress_of(tmp_path) == (None, "")


# Artifacts


def collect(
    tmp_path: Path, *patterns: str, succeeded: bool = True, when: str = "success"
) -> artifacts.CollectedArtifacts:
    wanted = [ArtifactPattern(path=each, when=when) for each in patterns]  # type: ignore[arg-type]
    return artifacts.collect(tmp_path / "work", tmp_path, wanted, succeeded)


def test_fault_65_links_fifos_and_sockets_are_skipped_and_named(tmp_path: Path) -> None:
    """Seen to fail when links are followed."""
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "good.txt").write_text("good")
    secret = tmp_path / "secret"
    secret.write_text("nobody may read this")
    secret.chmod(0o644)
    (work / "link.txt").symlink_to(secret)
    os.mkfifo(work / "fifo.txt")
    (work / "sub" / "dir").symlink_to(tmp_path)
    found = collect(tmp_path, "**/*.txt", "sub/**")
    assert [each.path for each in found.artifacts] == ["good.txt"]
    said = "\n".join(found.notes)
    assert "'link.txt' was skipped: it is a symbolic link" in said
    assert "'fifo.txt' was skipped: it is a FIFO" in said
    assert secret.stat().st_mode & 0o777 == 0o644, "the target of a link is not touched either"


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A workspace with folders nested so deep that no system call accepts the path of the last one."""
    work = tmp_path / "work"
    work.mkdir()
    here = os.open(work, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    yield work
    subprocess.run(["rm", "-rf", work], check=True)


def test_deep_folders_do_not_prevent_other_artifacts_from_being_collected(deep: Path) -> None:
    """Seen to fail when all levels are open at once: the worker's file descriptors are limited."""
    (deep / "x").touch()
    assert [each.path for each in collect(deep.parent, "**").artifacts] == ["x"]


def test_deep_folders_are_removed(deep: Path) -> None:
    """Seen to fail when a function that recurses once per level removes them."""
    assert remove(deep)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_folders_without_permissions_are_removed() -> None:
    """Seen to fail when the modes of nested folders are not changed first. For root, modes make no difference."""
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, *"wabc"[:depth]) for depth in range(5)]
        folders[-1].mkdir(parents=True)
        for each in reversed(folders):
            each.chmod(0o700 if each in folders[:2] else 0)
            os.chown(each, 65534, 65534)
        child = os.fork()
        if child == 0:
            os.setgid(65534)
            os.setuid(65534)
            os._exit(0 if remove(folders[1]) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_missing_artifact_is_named_and_a_failed_job_keeps_artifacts_that_are_always_wanted(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "log.txt").write_text("x")
    assert collect(tmp_path, "log.txt", succeeded=False).artifacts == []
    found = collect(tmp_path, "log.txt", "none.txt", succeeded=False, when="always")
    assert [each.path for each in found.artifacts] == ["log.txt"]
    assert found.notes == ["artifact 'none.txt' matched nothing"]


def test_an_interrupted_collection_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "work" / "out").mkdir(parents=True)
    for name in "abc":
        (tmp_path / "work" / "out" / name).write_text(name)
    first = collect(tmp_path, "out/*").artifacts
    assert collect(tmp_path, "out/*").artifacts == first
    assert {path: place.read_text() for path, place in artifacts.stored(tmp_path).items()} == {
        "out/a": "a", "out/b": "b", "out/c": "c",
    }  # fmt: skip


def test_fault_39_too_many_artifacts_are_refused_before_anything_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when there may be any number of artifacts."""
    monkeypatch.setattr(artifacts, "MAX_ARTIFACTS", 50)
    (tmp_path / "work").mkdir()
    for number in range(60):
        (tmp_path / "work" / str(number)).touch()
    found = collect(tmp_path, "*")
    assert found.artifacts == []
    assert "more than 50 artifacts" in found.refused
    assert len(list((tmp_path / "work").iterdir())) == 60


def test_paths_that_differ_only_in_case_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "A").write_text("1")
    (tmp_path / "work" / "a").write_text("2")
    found = collect(tmp_path, "*")
    assert len(found.artifacts) == 1
    assert "cannot tell it from" in found.notes[0]


def test_the_cache_keeps_recently_used_blobs_and_hands_out_only_copies(tmp_path: Path) -> None:
    fetched: list[str] = []

    def fetch(sha: str, target: Path) -> None:
        fetched.append(sha)
        target.write_bytes(b"x" * 100)

    cache = BlobCache(tmp_path / "cache", 250, fetch)
    for name in ("a", "b"):
        cache.copy(name, tmp_path / name, 0o644)
    os.utime(tmp_path / "cache" / "a", (1, 1))
    os.utime(tmp_path / "cache" / "b", (2, 2))
    cache.copy("a", tmp_path / "a2", 0o755)
    (tmp_path / "a2").write_text("changed")
    cache.copy("c", tmp_path / "c", 0o644)
    assert sorted(each.name for each in (tmp_path / "cache").iterdir()) == ["a", "c"]
    cache.copy("a", tmp_path / "a3", 0o644)
    assert (tmp_path / "a3").read_bytes() == b"x" * 100
    assert fetched == ["a", "b", "c"]
    assert (tmp_path / "a2").stat().st_mode & 0o777 == 0o755


def test_the_cache_keeps_blobs_that_are_being_fetched_or_copied(tmp_path: Path) -> None:
    """Seen to fail when only the last fetched blob is kept: the parts of another one were removed."""

    def fetch(sha: str, target: Path) -> None:
        part = target.with_name(f"{sha}.part")
        part.write_bytes(b"x" * 100)
        if sha == "large":
            cache.copy("small", tmp_path / "small", 0o644)
        part.rename(target)

    cache = BlobCache(tmp_path / "cache", 50, fetch)
    cache.copy("large", tmp_path / "large", 0o644)
    assert (tmp_path / "large").read_bytes() == b"x" * 100
    assert [each.name for each in (tmp_path / "cache").iterdir()] == ["large"]
