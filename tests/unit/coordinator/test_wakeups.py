"""Which waiting claims are woken."""

from __future__ import annotations

import threading

from deborgen_coordinator.operations.wakeups import MOST_NEEDS, WAKE_AFTER_LEFTOVERS, Wakeups
from deborgen_coordinator.placement import Amounts, MachineOffer, Needs
from deborgen_shared.messages import Claim
from deborgen_shared.states import RunAs
from support.waiting import wait_until

ROOM = Amounts(8, 2**34, 0, None)


def offer(site: str) -> MachineOffer:
    return MachineOffer({"runner.process": True, "site": site}, ROOM)


def needs(site: str) -> Needs:
    return Needs(Amounts(1), {"site": site}, "none", RunAs.PROCESS)


class Waiting:
    """Claims that wait, each of a worker at a site of its own; `woken` has the sites of those that were woken."""

    def __init__(self, *sites: str) -> None:
        self.wakeups = Wakeups(1000)
        self.woken: list[str] = []
        for number, site in enumerate(sites, 1):
            threading.Thread(target=self._wait, args=(site,), daemon=True).start()
            wait_until(lambda: len(self.wakeups._waiters["jobs"]) == number)  # noqa: B023
        self.wakeups._counts["jobs"] += 1  # a job came, and whoever was woken for it left it behind

    def _wait(self, site: str) -> None:
        claim = self.wakeups.open_claim(f"at-{site}", Claim(session="s", request_id="r", free=None, max=1))  # type: ignore[arg-type]
        claim.offer = offer(site) if site != "unknown" else None
        self.wakeups.wait("jobs", 0, 60, claim)
        self.woken.append(site)


def test_only_a_claim_whose_worker_fits_what_is_left_is_woken() -> None:
    waiting = Waiting(*map(str, range(20)))
    waiting.wakeups.wake_next([needs("7")])
    wait_until(lambda: waiting.woken == ["7"])
    waiting.wakeups.wake_next([needs("7"), needs("moon")])
    waiting.wakeups.wake_next([needs("3"), needs("4"), needs("5")])
    wait_until(lambda: sorted(waiting.woken) == ["4", "5", "7"])
    waiting.wakeups.close()


def test_without_knowledge_the_newest_claims_are_woken() -> None:
    for left in ([], [needs("moon")] * (MOST_NEEDS + 1)):
        waiting = Waiting("1", "2", "3")
        waiting.wakeups.wake_next(left)
        wait_until(lambda: sorted(waiting.woken) == ["2", "3"])  # noqa: B023
        assert len(waiting.woken) == WAKE_AFTER_LEFTOVERS
        waiting.wakeups.close()
    waiting = Waiting("1", "unknown")
    waiting.wakeups.wake_next([needs("moon")])
    wait_until(lambda: waiting.woken == ["unknown"])
    waiting.wakeups.close()
