"""How a worker finds its unit, and the unit's job."""

from __future__ import annotations

import pytest

from deborgen_worker.service_manager import job_of, own_unit

LISTED = """  12 deborgen-worker.service          restart running
 345 multi-user.target                start   waiting
   6 other-deborgen-worker.service    stop    waiting
"""


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        ("0::/system.slice/deborgen-worker.service\n", ("--system", "deborgen-worker.service")),
        ("4:memory:/a.service\n1:name=systemd:/system.slice/b.service\n0::/c\n", ("--system", "b.service")),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/w.service\n", ("--user", "w.service")),
        ("0::/system.slice/w.service/inner\n", ("--system", "w.service")),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/terminal.scope\n", None),
        ("0::/system.slice/docker-0123.scope\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_the_unit_is_the_innermost_service(cgroups: str, unit: tuple[str, str] | None) -> None:
    assert own_unit(cgroups) == unit


def test_the_job_is_that_of_exactly_this_unit() -> None:
    assert job_of("deborgen-worker.service", LISTED) == "restart"
    assert job_of("other-deborgen-worker.service", LISTED) == "stop"
    assert job_of("worker.service", LISTED) == ""
    assert job_of("worker.service", "No jobs running.\n") == ""
