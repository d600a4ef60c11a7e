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


def place(*flags: str, **wanted: list[dict[str, str]]) -> dict[str, Any]:
    """What the module answers; `said` is all that Ansible printed."""
    words = {"owner": getpass.getuser(), **wanted}
    program = Path(sys.executable).parent / "ansible"
    done = subprocess.run(
        [program, "localhost", "-c", "local", "-i", "localhost,", "-M", ANSIBLE / "library", "-m", "deborgen_place",
         "-a", json.dumps(words), "-e", f"ansible_python_interpreter={sys.executable}", *flags],
        capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    text = done.stdout + done.stderr
    answer = json.loads(done.stdout[done.stdout.index("=> {") + 3 : done.stdout.rindex("}") + 1])
    return {**answer, "said": text}


def test_folders_files_and_links_are_laid_once(tmp_path: Path) -> None:
    wanted = {
        "folders": [{"path": str(tmp_path / "etc"), "mode": "0750"}],
        "files": [{"path": str(tmp_path / "etc" / "conf"), "content": "a = 1", "mode": "0640"}],
        "links": [{"path": str(tmp_path / "bin"), "to": "/opt/not/there/yet"}],
    }
    assert place("--check", **wanted)["changed"] is True
    assert list(tmp_path.iterdir()) == [], "a check makes nothing"
    assert place(**wanted)["placed"] == [str(tmp_path / name) for name in ("etc", "etc/conf", "bin")]
    assert (tmp_path / "etc" / "conf").read_text() == "a = 1\n"
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("etc", "etc/conf")] == [0o750, 0o640]
    assert str((tmp_path / "bin").readlink()) == "/opt/not/there/yet"
    assert place(**wanted)["changed"] is False
    (tmp_path / "etc" / "conf").chmod(0o666)
    assert place(**wanted)["placed"] == [str(tmp_path / "etc" / "conf")], "a mode that somebody changed is put right"


def test_what_a_file_holds_is_in_no_log_and_in_no_diff(tmp_path: Path) -> None:
    said = place("-vvv", "--diff", files=[{"path": str(tmp_path / "conf"), "content": SECRET, "mode": "0600"}])["said"]
    assert (tmp_path / "conf").read_text() == SECRET + "\n"
    assert "sesame" not in said


def test_a_diff_shows_what_everyone_may_read(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("# the policy\ncpus = 1\n")
    wanted = [{"path": str(tmp_path / "conf"), "content": "# the policy\ncpus = 2"}]
    said = place("--diff", "--check", files=wanted)["said"]
    assert "-cpus = 1" in said
    assert "+cpus = 2" in said


def test_a_file_in_the_place_of_a_link_is_not_ours_to_replace(tmp_path: Path) -> None:
    (tmp_path / "bin").write_text("the owner's own program")
    answer = place(links=[{"path": str(tmp_path / "bin"), "to": "/opt/ours"}])
    assert "it is no link, and not ours" in answer["msg"]
    assert (tmp_path / "bin").read_text() == "the owner's own program"
