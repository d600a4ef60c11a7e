"""The playbooks' own modules, run by Ansible on this machine, without any host."""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.play import ANSIBLE

pytest.importorskip("ansible", reason="the modules were not tested: ansible is missing; `make fleet` installs it")

SECRET = "password = sesame-of-the-database"


def make_files(*flags: str, **wanted: list[dict[str, str]]) -> dict[str, Any]:
    """The module's answer; `output` is everything that Ansible printed."""
    words = {"owner": getpass.getuser(), **wanted}
    program = Path(sys.executable).parent / "ansible"
    done = subprocess.run(
        [program, "localhost", "-c", "local", "-i", "localhost,", "-M", ANSIBLE / "library", "-m", "deborgen_files",
         "-a", json.dumps(words), "-e", f"ansible_python_interpreter={sys.executable}", *flags],
        capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    text = done.stdout + done.stderr
    answer = json.loads(done.stdout[done.stdout.index("=> {") + 3 : done.stdout.rindex("}") + 1])
    return {**answer, "output": text}


def test_folders_files_and_links_are_made_once(tmp_path: Path) -> None:
    wanted = {
        "folders": [{"path": str(tmp_path / "etc"), "mode": "0750"}],
        "files": [{"path": str(tmp_path / "etc" / "conf"), "content": "a = 1", "mode": "0640"}],
        "links": [{"path": str(tmp_path / "bin"), "to": "/opt/not/there/yet"}],
    }
    assert make_files("--check", **wanted)["changed"] is True
    assert list(tmp_path.iterdir()) == [], "check mode makes nothing"
    assert make_files(**wanted)["changed_paths"] == [str(tmp_path / name) for name in ("etc", "etc/conf", "bin")]
    assert (tmp_path / "etc" / "conf").read_text() == "a = 1\n"
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("etc", "etc/conf")] == [0o750, 0o640]
    assert str((tmp_path / "bin").readlink()) == "/opt/not/there/yet"
    assert make_files(**wanted)["changed"] is False
    (tmp_path / "etc" / "conf").chmod(0o666)
    corrected = make_files(**wanted)["changed_paths"]
    assert corrected == [str(tmp_path / "etc" / "conf")], "a mode that somebody changed is corrected"


def test_the_content_of_a_private_file_is_in_no_log_and_in_no_diff(tmp_path: Path) -> None:
    wanted = [{"path": str(tmp_path / "conf"), "content": SECRET, "mode": "0600"}]
    output = make_files("-vvv", "--diff", files=wanted)["output"]
    assert (tmp_path / "conf").read_text() == SECRET + "\n"
    assert "sesame" not in output


def test_a_diff_shows_what_everyone_may_read(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("# the policy\ncpus = 1\n")
    wanted = [{"path": str(tmp_path / "conf"), "content": "# the policy\ncpus = 2"}]
    output = make_files("--diff", "--check", files=wanted)["output"]
    assert "-cpus = 1" in output
    assert "+cpus = 2" in output


def test_a_file_that_its_program_refuses_is_not_written(tmp_path: Path) -> None:
    """A program without the command to check, as an older release is, refuses nothing."""
    (tmp_path / "conf").write_text("cpus = 1\n")
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\ngrep -q many "$1" && { echo "cpus in $1 is wrong" >&2; exit 3; }\nexit 2\n')
    program.chmod(0o755)
    for flags in (["--check"], []):
        wanted: list[Any] = [
            {"path": str(tmp_path / "other"), "content": "made first"},
            {"path": str(tmp_path / "conf"), "content": "cpus = many", "check": [str(program)]},
        ]
        answer = make_files(*flags, files=wanted)
        assert f"cpus in {tmp_path}/conf is wrong" in answer["msg"]
        assert (tmp_path / "conf").read_text() == "cpus = 1\n"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["conf", "program"], "no draft, and nothing else"
    wanted[1]["content"] = "cpus = 2"
    assert make_files(files=wanted)["changed"] is True


def test_old_versions_are_kept_where_the_caller_says(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("cpus = 1\n")
    (tmp_path / "conf").chmod(0o640)
    (tmp_path / "same").write_text("x = 1\n")
    wanted: list[Any] = [
        {"path": str(tmp_path / "conf"), "content": "cpus = 2", "mode": "0640"},
        {"path": str(tmp_path / "same"), "content": "x = 1"},
        {"path": str(tmp_path / "new"), "content": "y = 1"},
    ]
    old: Any = str(tmp_path / "old")
    make_files(files=wanted, keep_old=old)
    kept = [path for path in Path(old).rglob("*") if path.is_file()]
    assert [(path.name, path.read_text(), path.stat().st_mode & 0o777) for path in kept] == [
        ("conf", "cpus = 1\n", 0o640)
    ]
    make_files(files=wanted, keep_old=old)
    assert not Path(old).exists(), "what was kept belongs to the run that changed something"


def test_a_file_where_a_link_belongs_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "bin").write_text("the owner's own program")
    answer = make_files(links=[{"path": str(tmp_path / "bin"), "to": "/opt/ours"}])
    assert "exists and is not a link" in answer["msg"]
    assert (tmp_path / "bin").read_text() == "the owner's own program"
