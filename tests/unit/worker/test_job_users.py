"""Which users a root worker takes for its jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from deborgen_worker.runners.isolation import PART, own_part
from deborgen_worker.settings import FIRST_USER, TABLE, SettingsError, WorkerSettings

STATES = [Path(f"/var/lib/worker-{number}") for number in range(20)]


def test_workers_of_one_machine_take_different_users_and_always_the_same() -> None:
    """Seen to fail when a worker takes users from the whole range: then two workers may give the same one to two jobs,
    and the end of one job ends the other."""
    users = WorkerSettings().process_users
    parts = [own_part(users, state) for state in STATES]
    assert parts == [own_part(users, state) for state in STATES]
    assert len({user for part in parts for user in part}) == len(STATES) * PART
    assert all(user in users and user % 2 == 0 for part in parts for user in part)


def test_a_small_range_is_taken_whole() -> None:
    users = range(70_000, 70_256, 2)
    assert own_part(users, STATES[0]) == users


@pytest.mark.parametrize(
    "text", ["", "off", "1000", "900-2000", "70000-70100", "70000-60000", "70000-4294967296", "-1"]
)
def test_a_range_of_users_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=f"{FIRST_USER}-"):
        TABLE.load({"process_users": text}, {}, None)
