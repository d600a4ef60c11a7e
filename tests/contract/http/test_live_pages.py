"""Open pages hear that something has changed, on one thread for all of them, and each person has a share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import requests

from support.browser import Visitor
from support.coordinator import CoordinatorProcess, children_of
from support.scripted_worker import ScriptedWorker

#: As many tabs as one person may have open: a quarter of the setting `max-streams`.
EACH = 100


def threads(coordinator: CoordinatorProcess) -> int:
    assert coordinator.process is not None
    return sum(len(list(Path(f"/proc/{child}/task").iterdir())) for child in children_of(coordinator.process.pid))


def open_tab(visitor: Visitor, path: str = "/live") -> requests.Response:
    answer = visitor.stream(path)
    assert answer.status_code == 200, answer.text
    return answer


def news(tab: requests.Response) -> Iterator[bytes]:
    return (line for line in tab.iter_lines(1) if line == b"event: news")


def test_three_people_have_three_hundred_pages_open_and_heartbeats_are_answered(
    own_coordinator: CoordinatorProcess,
) -> None:
    coordinator = own_coordinator
    with ExitStack() as stack:
        people = [stack.enter_context(Visitor(coordinator)) for _ in range(3)]
        worker = ScriptedWorker(coordinator, "box")
        worker.register()
        tabs = []
        before = threads(coordinator)
        for number, visitor in enumerate(people):
            visitor.sign_in("submitter", f"person-{number}")
            tabs += [stack.enter_context(open_tab(visitor)) for _ in range(EACH)]
        assert threads(coordinator) - before < EACH, "a page holds no thread"
        refused = people[0].get("/live")
        assert refused.status_code == 429
        assert "one person may have 100" in refused.text
        assert worker.heartbeat()["attempts"] == {}
        coordinator.client("admin").post("/v1/runs", json={"run": "true"})
        for tab in tabs:
            assert next(news(tab))
        assert worker.heartbeat()["attempts"] == {}


def test_a_page_hears_of_its_own_run_only(coordinator: CoordinatorProcess) -> None:
    client = coordinator.client("submitter")
    mine, other = (client.post("/v1/runs", json={"run": "true"}).json()["id"] for _ in range(2))
    with Visitor(coordinator) as visitor:
        visitor.sign_in("submitter")
        with (
            open_tab(visitor, f"/live?run={mine}") as about_mine,
            open_tab(visitor, f"/live?run={other}") as about_other,
        ):
            client.post(f"/v1/runs/{mine}/cancel")
            assert next(news(about_mine))
            client.post(f"/v1/runs/{other}/cancel")
            assert next(news(about_other))


def test_the_news_end_when_somebody_signs_out(coordinator: CoordinatorProcess) -> None:
    with Visitor(coordinator) as visitor:
        visitor.sign_in("submitter")
        with open_tab(visitor) as tab:
            visitor.change("/sign-out")
            for _ in tab.iter_content(100):
                pass  # until it ends
        assert visitor.get("/live").status_code == 303
