"""The table of settings: flags, environment and file derive from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deborgen_coordinator.settings import TABLE, CoordinatorSettings, SettingsError
from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.keys import KEYS
from support.coordinator import clean_environment


def test_a_flag_overrides_the_environment_and_that_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "coordinator.toml"
    file.write_text('lease_seconds = 100\nmax-waiters = 5\nscheduler = "fair"\n')
    environment = {"DEBORGEN_LEASE_SECONDS": "200", "DEBORGEN_MAX_WAITERS": "6"}
    settings = TABLE.load({"lease_seconds": "5m"}, environment, str(file))
    assert (settings.lease_seconds, settings.max_waiters, settings.scheduler) == (300.0, 6, "fair")
    assert settings.heartbeat_seconds == CoordinatorSettings().heartbeat_seconds


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "coordinator.toml"
    file.write_text('max_body = "2MiB"\n')
    assert TABLE.load({}, {"DEBORGEN_CONFIG": str(file)}).max_body == 2 * 2**20


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"listen": "8765"}, "--listen: '8765' is not a valid address"),
        ({"listen": "host:99999"}, "--listen"),
        ({"lease_seconds": "2 hours"}, "write 2h"),
        ({"lease_seconds": "5"}, "a lease must last at least two heartbeats"),
        ({"lease_seconds": "inf"}, "--lease-seconds"),
        ({"max_body": "8 megs"}, "--max-body"),
        ({"threads": "1"}, "at least 4"),
        ({"threads": "32"}, "must leave 2 of the 32 threads"),
        ({"scheduler": "random"}, "is not a valid choice: it must be fifo or fair"),
        ({"database": "mysql://x"}, "postgresql://"),
        ({"poll_rate": "0"}, "above 0"),
        ({"default_max_attempts": "0"}, "at least 1"),
        ({"default_max_attempts": "101"}, "at most 100"),
    ],
)
def test_a_bad_value_is_refused_in_one_clear_line(flags: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        TABLE.load(flags, {})
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lease_secnds = 5", "did you mean 'lease_seconds'?"),
        ("threads = [1]", "must be a string or a number"),
        ("threads =", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_in_one_clear_line(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "coordinator.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        TABLE.load({}, {}, str(file))
    assert sentence in str(refused.value)


def test_a_bad_setting_ends_the_program_with_exit_code_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deborgen_coordinator", "serve", "--listen", "nowhere"],
        capture_output=True,
        text=True,
        env=clean_environment(),
    )
    assert done.returncode == 2
    assert done.stderr.startswith("deborgen-coordinator: --listen: 'nowhere' is not a valid address")
    assert len(done.stderr.splitlines()) == 1


def test_the_default_number_of_attempts_has_the_same_limits_as_in_a_job_file() -> None:
    for number in limits.MAX_ATTEMPTS:
        assert TABLE.load({"default_max_attempts": str(number)}, {}).default_max_attempts == number
    (key,) = (key for key in KEYS if key.name == "max_attempts")
    assert f"`default_max_attempts`: `{CoordinatorSettings().default_max_attempts}` unless" in key.default
