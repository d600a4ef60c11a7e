"""A short run of `make fuzz`: it finds nothing in the product, and it finds a fault that is planted."""

from __future__ import annotations

from pathlib import Path

from deborgen_shared import contract
from fuzz.campaign import Campaign
from fuzz.report import MIB

TESTS = Path(__file__).resolve().parents[2]
#: The tests run beside others on a busy machine. `make fuzz` is stricter.
SLOWEST_HEARTBEAT, MOST_GROWTH = 20.0, 256 * MIB
#: What plants the fault in a Python process when that starts: one handler of the coordinator raises.
PLANT = """
from planted.patch import Patch

def with_an_error(original):
    def why(ctx, run, index):
        return original(ctx, run, index).nonsense
    return why

Patch("deborgen_coordinator.operations.jobs.why:why", with_an_error).plant()
"""


def test_a_short_run_of_the_fuzzer_finds_nothing(tmp_path: Path) -> None:
    report = Campaign(tmp_path, 1, SLOWEST_HEARTBEAT, MOST_GROWTH).run(requests=3000, seconds=120)
    assert not report.findings, "\n".join(finding.shown() for finding in report.findings)
    assert {name for name, counts in report.counts.items() if not counts["requests"]} == set()
    assert report.counts["job files"]["checks"] > 10
    assert report.jobs_run > 0


def test_the_fuzzer_finds_a_handler_that_raises(tmp_path: Path) -> None:
    plant = tmp_path / "plant"
    plant.mkdir()
    (plant / "sitecustomize.py").write_text(PLANT)
    env = {"PYTHONPATH": f"{plant}:{TESTS}"}
    report = Campaign(tmp_path, 1, SLOWEST_HEARTBEAT, MOST_GROWTH, env).run(requests=3000, seconds=120)
    what = [finding for finding in report.findings if finding.what.startswith("500")]
    assert what, "\n".join(finding.shown() for finding in report.findings)
    assert contract.WHY.path.rpartition("/")[2].encode() in what[0].request
    assert any("nonsense" in finding.what for finding in report.findings if finding.source == "coordinator")
