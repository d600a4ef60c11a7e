"""From a job file to the request: every problem is shown with its line, and nothing invalid is sent."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from deborgen.errors import InvalidJob, WrongUsage
from deborgen.submit import read, send
from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.keys import NOT_YET


def prepare(folder: Path, text: str, **params: object) -> read.PreparedJobFile:
    (folder / "job.yml").write_text(text)
    return read.prepare_file(folder / "job.yml", params)


def report(refusal: pytest.ExceptionInfo[InvalidJob], folder: Path) -> str:
    return str(refusal.value.details["report"]).replace(f"{folder}/", "")


def test_the_smallest_job_is_named_after_its_file(tmp_path: Path) -> None:
    assert send.request_body(prepare(tmp_path, "run: echo hello")) == {"name": "job", "run": "echo hello"}


def test_files_become_digests_sizes_and_modes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_text("a")
    (tmp_path / "b").write_text("")
    body = send.request_body(prepare(tmp_path, "run: ls\nfiles: [data/, b]"))
    assert [(file["path"], file["size"], file["mode"]) for file in body["files"]] == [
        ("data/a", 1, 0o644),
        ("b", 0, 0o644),
    ]
    assert body["files"][1]["sha256"] == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_equal_files_have_equal_digests(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"same")
    (tmp_path / "b").write_bytes(b"same")
    body = send.request_body(prepare(tmp_path, "run: ls\nfiles: [a, b]"))
    assert [file["path"] for file in body["files"]] == ["a", "b"]
    assert {file["sha256"] for file in body["files"]} == {hashlib.sha256(b"same").hexdigest()}


def test_files_of_steps_are_found_too(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    body = send.request_body(prepare(tmp_path, "steps:\n  - {id: a, run: ls}\n  - {id: b, run: ls, files: [x]}"))
    assert "files" not in body["steps"][0]
    assert body["steps"][1]["files"][0]["path"] == "x"


def test_a_missing_file_is_reported_with_its_line_and_all_other_problems(tmp_path: Path) -> None:
    (tmp_path / "sim.py").write_text("")
    with pytest.raises(InvalidJob) as refusal:
        prepare(tmp_path, "run: python sim.py\nfiles: [smi.py]\ntimeout: 2 hours\n")
    assert report(refusal, tmp_path).splitlines() == [
        "job.yml:2:9: the file 'smi.py' does not exist",
        "  2| files: [smi.py]",
        "   |         ^^^^^^ did you mean 'sim.py'?",
        "job.yml:3:10: 'timeout' is not a duration",
        "  3| timeout: 2 hours",
        "   |          ^^^^^^^ write 2h (units: s m h d)",
        "2 problems, nothing was submitted.",
    ]


def test_a_file_with_an_invalid_name_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/back\\slash").write_text("")
    with pytest.raises(InvalidJob) as refusal:
        prepare(tmp_path, "run: ls\nfiles: [data/]\n")
    assert "job.yml:2:9: the path of the file" in report(refusal, tmp_path)
    assert "contains a backslash" in report(refusal, tmp_path)


def test_too_many_files_are_refused_before_any_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FILES", 3)
    (tmp_path / "data").mkdir()
    for number in range(4):
        (tmp_path / f"data/{number}").write_text("")
    with pytest.raises(InvalidJob) as refusal:
        prepare(tmp_path, "run: ls\nfiles: [data/]\n")
    assert "there are 4 files, but the limit is 3" in report(refusal, tmp_path)


def test_an_unsupported_key_is_refused_before_sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NOT_YET, "checkpoint", "is not supported by this version yet")
    with pytest.raises(InvalidJob) as refusal:
        prepare(tmp_path, "run: make\ncheckpoint: {path: state/}\n")
    assert "job.yml:2:1" in report(refusal, tmp_path)


def test_problems_found_by_the_coordinator_are_shown_with_their_lines(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "steps:\n  - id: a\n    run: ls\n    image: x\n")
    found = [{"path": "steps[0].image", "message": "the image is forbidden", "hint": "use another"}]
    refusal = InvalidJob("no", details={"problems": found})
    shown = send.explained(refusal, prepared.document).details["report"].replace(f"{tmp_path}/", "")
    assert shown.splitlines()[:3] == [
        "job.yml:4:12: the image is forbidden",
        "  4|     image: x",
        "   |            ^ use another",
    ]


def test_a_parameter_overrides_its_axis_or_adds_one(tmp_path: Path) -> None:
    text = "run: echo ${{ seed }} $DEBORGEN_PARAM_X\nsweep: {grid: {seed: [1, 2]}}"
    assert prepare(tmp_path, text, seed=[7, 8, 9]).jobfile.count == 3
    assert prepare(tmp_path, text, seed=5).data["sweep"]["grid"] == {"seed": [5]}
    assert prepare(tmp_path, text, x=range(4)).jobfile.count == 8


def test_a_parameter_that_no_step_uses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="no step has a parameter 'y'"):
        prepare(tmp_path, "steps: [{id: a, run: ls}]", y=1)


@pytest.mark.parametrize("name", ["missing.yml", "."])
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        read.prepare_file(tmp_path / name, {})
    assert refusal.value.exit_code == 3


@pytest.mark.parametrize(
    ("command", "template"),
    [
        ("sim --x {x}", "sim --x ${{ x }}"),
        ("echo {{literal}} {job.id}", "echo {literal} ${{ job.id }}"),
        ("no braces", "no braces"),
    ],
)
def test_braces_become_lookups(command: str, template: str) -> None:
    assert read.braces_to_template(command) == template


@pytest.mark.parametrize("command", ["{", "{}", "{x:03d}", "{x!r}", "{0}", "{a b}"])
def test_an_invalid_lookup_is_refused(command: str) -> None:
    with pytest.raises(WrongUsage):
        read.braces_to_template(command)
