"""The requirements of a job may be very long."""

from __future__ import annotations

from support.in_process import InProcessCoordinator


def test_jobs_with_very_long_requirements_are_accepted_and_find_their_machine(pool: InProcessCoordinator) -> None:
    """Seen to fail when the needs themselves are the key of a class: PostgreSQL allows no key of that size."""
    wanted = {f"label{number}": f"{number:0100}" for number in range(60)}
    pool.submit(requires=wanted)
    pool.submit(requires=wanted)
    assert pool.worker("pc1").claim(5) == []
    assert pool.worker("pc2", labels=wanted).claim(5) == ["1.1/1", "2.1/1"]
