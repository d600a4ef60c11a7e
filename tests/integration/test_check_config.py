"""`check-config` of both programs: everything that is wrong with a file of settings, at once, without starting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deborgen_shared.messages import Labels
from deborgen_shared.settings import SettingsError
from deborgen_worker.settings import TABLE
from support.coordinator import clean_environment

ROOT = Path(__file__).parents[2]


def check(program: str, file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", program, "check-config", str(file)],
        capture_output=True, text=True, env=clean_environment(), timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("program", "text", "sentences"),
    [
        (
            "deborgen_worker",
            'memory = "2 gigs"\nhours = "22-7"\ncpu = 2\ncoordinator = "10.8.0.1:8765"\n[labels]\n"in room" = "a"\n',
            ["memory in", "hours in", "unknown setting 'cpu': did you mean 'cpus'?", "coordinator in", "labels in"],
        ),
        (
            "deborgen_coordinator",
            'listen = "10.8.0.1"\nscheduler = "random"\nlease_secnds = 5\n',
            ["listen in", "scheduler in", "unknown setting 'lease_secnds': did you mean 'lease_seconds'?"],
        ),
        (
            "deborgen_coordinator",
            "heartbeat_seconds = 50\nthreads = 4\n",
            ["a lease must last at least two heartbeats", "must leave 2 of the 4 threads free"],
        ),
        ("deborgen_coordinator", 'listen = "192.0.2.1:8765"\n', ["cannot listen on 192.0.2.1:8765"]),
        ("deborgen_worker", "cpus =\n", ["is not valid TOML"]),
    ],
)
def test_every_problem_is_named_in_one_sentence(tmp_path: Path, program: str, text: str, sentences: list[str]) -> None:
    """Seen to fail with a loader that stops at the first problem."""
    file = tmp_path / "settings.toml"
    file.write_text(text)
    done = check(program, file)
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert len(lines) == len(sentences), done.stderr
    for sentence in sentences:
        (line,) = [line for line in lines if sentence in line]
        assert line.startswith(program.replace("_", "-") + ": ")


def test_a_file_that_the_program_accepts_is_silent(tmp_path: Path) -> None:
    (tmp_path / "worker.toml").write_text('memory = "2GiB"\n[labels]\nroom = "kitchen"\n')
    (tmp_path / "coordinator.toml").write_text('listen = "127.0.0.1:1"\n')
    for program in ("worker", "coordinator"):
        done = check(f"deborgen_{program}", tmp_path / f"{program}.toml")
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".toml"] == [], "nothing was created"


def test_the_owners_own_file_counts(tmp_path: Path) -> None:
    (tmp_path / "worker.toml").write_text("cpus = 2\n")
    (tmp_path / "worker.local.toml").write_text('cpus = "all of them"\n')
    done = check("deborgen_worker", tmp_path / "worker.toml")
    assert done.returncode == 3
    assert "worker.local.toml" in done.stderr


@pytest.mark.parametrize("name", ["room", "a/b.c-d_e", "in room", "-x", "a" * 63, "a" * 64, "ä"])
def test_a_label_is_refused_by_the_worker_exactly_if_the_coordinator_would_refuse_it(name: str) -> None:
    """The worker asked to join, was refused, and crashed again and again. Seen to fail with labels of any name."""
    try:
        msgspec.convert({name: "x"}, Labels)
        accepted = True
    except msgspec.ValidationError:
        accepted = False
    if accepted:
        assert TABLE.load({"labels": f"{name}=x"}, {}).labels == {name: "x"}
    else:
        with pytest.raises(SettingsError, match="name a label with at most 63"):
            TABLE.load({"labels": f"{name}=x"}, {})


def test_the_tables_of_settings_need_only_the_standard_library() -> None:
    """The playbooks use them on a computer that has only Ansible."""
    parts = [str(ROOT / part / "src") for part in ("shared", "worker", "coordinator")]
    script = (
        f"import sys; sys.path[:0] = {parts!r}; "
        "import deborgen_worker.settings, deborgen_coordinator.settings; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'__main__'}))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['deborgen_coordinator', 'deborgen_shared', 'deborgen_worker']", done.stderr
