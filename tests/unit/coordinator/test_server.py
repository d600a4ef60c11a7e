"""What the coordinator needs from its operating system."""

from __future__ import annotations

import resource
from plistlib import load

import pytest

from deborgen_coordinator import server, settings
from deborgen_coordinator.__main__ import parser
from support.documents import ROOT

PLIST = ROOT / "deploy/launchd/deborgen.coordinator.plist"


@pytest.mark.parametrize(
    ("hard", "most", "connections"),
    [
        (4096, 4096, 3968),  # Linux: as many as the administrator allows
        (1 << 20, 1 << 20, 4000),
        (resource.RLIM_INFINITY, 10_240, 4000),  # macOS: it reports no limit, but refuses to set none
        (resource.RLIM_INFINITY, 256, 128),  # a system that allows no higher limit
    ],
)
def test_the_limit_of_open_files_bounds_the_connections(
    hard: int, most: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def setrlimit(_: int, limits: tuple[int, int]) -> None:
        if not 0 <= limits[0] <= most:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    assert server._connections(4000) == connections


def test_the_command_in_the_launchd_example_is_valid() -> None:
    with PLIST.open("rb") as file:
        job = load(file)
    assert job["Label"] == PLIST.stem
    program, *words = job["ProgramArguments"]
    assert program.endswith("/bin/deborgen-coordinator")
    given = parser().parse_args(words)
    chosen = settings.TABLE.load(vars(given), {}, given.config)
    assert given.command == "serve"
    assert (chosen.listen, chosen.data_dir) == ("10.0.0.1:8765", "/usr/local/var/deborgen")
    assert job["UserName"] != "root"
    assert job["RunAtLoad"]
    assert job["KeepAlive"]
    assert job["ExitTimeOut"] > server.GRACE_SECONDS, "a stop is given the time that it may take"
    said = (ROOT / "docs/operations.md").read_text()
    for name in (PLIST.name, chosen.data_dir, job["StandardErrorPath"], f"system/{job['Label']}"):
        assert name in said
