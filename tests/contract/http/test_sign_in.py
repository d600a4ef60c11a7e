"""Signing in to the dashboard, what a session may do, and who is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import requests

from support.browser import Visitor
from support.coordinator import CoordinatorProcess


@pytest.fixture
def visitor(coordinator: CoordinatorProcess) -> Iterator[Visitor]:
    with Visitor(coordinator) as session:
        yield session


def link(coordinator: CoordinatorProcess, role: str = "submitter") -> str:
    answer = coordinator.client(role).post("/v1/sign-in-links")
    assert answer.status_code == 201, answer.text
    return str(answer.json()["path"])


def test_a_link_signs_one_browser_in_once(coordinator: CoordinatorProcess, visitor: Visitor) -> None:
    path = link(coordinator)
    code = path.partition("code=")[2]
    for _ in range(3):  # a preview of the link does not use it up
        assert "Sign in" in visitor.get(path).text
    cookie = visitor.post("/sign-in", {"code": code}).headers["Set-Cookie"]
    assert "HttpOnly; SameSite=Strict" in cookie
    assert "Max-Age=43200" in cookie
    assert "Secure" not in cookie
    assert visitor.get("/runs").status_code == 200
    with Visitor(coordinator) as late:
        refused = late.post("/sign-in", {"code": code})
        assert (refused.status_code, "used already" in refused.text) == (403, True)
        assert late.get("/runs").headers["Location"] == "/sign-in?next=%2Fruns"


def test_behind_tls_the_cookie_is_secure(coordinator: CoordinatorProcess, visitor: Visitor) -> None:
    code = link(coordinator).partition("code=")[2]
    answer = visitor.post("/sign-in", {"code": code}, Host="pool.example.org", Origin="https://pool.example.org")
    assert answer.status_code == 303
    assert answer.headers["Set-Cookie"].endswith("; Secure")


def test_a_token_signs_in_and_a_machines_token_does_not(coordinator: CoordinatorProcess, visitor: Visitor) -> None:
    assert visitor.post("/sign-in", {"token": "dbg_admin_000000000000_wrong"}).status_code == 401
    assert visitor.post("/sign-in", {"token": coordinator.token("worker")}).status_code == 403
    assert visitor.post("/sign-in", {"token": ""}).status_code == 401
    visitor.sign_in("viewer")
    assert visitor.get("/runs").status_code == 200


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_signing_in_never_leads_to_another_site(coordinator: CoordinatorProcess, visitor: Visitor, target: str) -> None:
    answer = visitor.post("/sign-in", {"token": coordinator.token("viewer"), "next": target})
    assert answer.headers["Location"] == "/"


def test_a_session_ends_with_its_token_and_when_its_owner_signs_out(
    coordinator: CoordinatorProcess, visitor: Visitor
) -> None:
    admin = coordinator.client("admin")
    token = admin.post("/v1/tokens", json={"role": "submitter", "name": "leaver"}).json()
    visitor.post("/sign-in", {"token": token["token"]})
    assert visitor.get("/v1/me").json()["name"] == "leaver"
    admin.delete(f"/v1/tokens/{token['id']}")
    assert visitor.get("/v1/me").status_code == 401
    assert visitor.get("/runs").headers["Location"].startswith("/sign-in")

    visitor.sign_in("submitter")
    cookies = dict(visitor.cookies)
    assert visitor.change("/sign-out").status_code == 303
    visitor.cookies.update(cookies)  # a copy of the cookie is worth nothing
    assert visitor.get("/runs").headers["Location"].startswith("/sign-in")


def test_fault_73_a_change_needs_the_word_that_only_our_pages_know(
    coordinator: CoordinatorProcess, visitor: Visitor
) -> None:
    """Seen to fail when a form is accepted from every site, and without the word of the session."""
    run = str(coordinator.client("submitter").post("/v1/runs", json={"run": "true"}).json()["id"])
    visitor.sign_in("submitter")
    csrf = visitor.csrf()
    refused = [
        visitor.post("/runs/cancel", {"run": run}),
        visitor.post("/runs/cancel", {"run": run, "csrf": "0" * 32}),
        visitor.post("/runs/cancel", {"run": run, "csrf": csrf}, Origin="http://evil.example"),
        visitor.post("/runs/cancel", {"run": run, "csrf": csrf}, Origin="null"),
        visitor.post("/runs/cancel", {"run": run, "csrf": csrf}, Origin=""),
        visitor.post(f"/v1/runs/{run}/cancel", None),
        visitor.post(f"/v1/runs/{run}/cancel", None, Origin="http://evil.example", **{"Deborgen-CSRF": csrf}),
    ]
    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert visitor.get(f"/v1/runs/{run}").json()["jobs"]["queued"] == 1
    assert visitor.post("/runs/cancel", {"run": run, "csrf": csrf}).status_code == 303
    assert visitor.get(f"/v1/runs/{run}").json()["state"] == "canceled"


def test_fault_73_a_forged_host_and_framing_are_refused(coordinator: CoordinatorProcess, visitor: Visitor) -> None:
    """Seen to fail when a session is accepted under every name of the coordinator, and when other sites may frame the
    pages."""
    visitor.sign_in("submitter")
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    port = coordinator.url.rpartition(":")[2]
    forged = visitor.get("/runs", Host=f"evil.example:{port}", Cookie=cookie)
    assert forged.status_code == 303, "a session is worth nothing at another address"
    assert visitor.get("/v1/runs", Host=f"evil.example:{port}", Cookie=cookie).status_code == 401
    for path in ("/runs", "/sign-in", "/nothing"):
        policy = visitor.get(path).headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_fault_73_a_viewer_changes_nothing(coordinator: CoordinatorProcess, visitor: Visitor) -> None:
    """Seen to fail when a viewer may send every form."""
    run = str(coordinator.client("submitter").post("/v1/runs", json={"run": "true"}).json()["id"])
    visitor.sign_in("viewer", "test-submitter")  # even if the run is that person's own
    page = visitor.get("/runs").text
    assert "<button formaction" not in page
    for path in ("/runs/cancel", "/runs/retry"):
        assert visitor.change(path, run=run).status_code == 403
    assert visitor.get(f"/v1/runs/{run}").json()["jobs"]["queued"] == 1


def test_nobody_cancels_the_run_of_somebody_else(coordinator: CoordinatorProcess, visitor: Visitor) -> None:
    own = coordinator.client("submitter").post("/v1/runs", json={"run": "true"}).json()["id"]
    other = coordinator.client("submitter", "somebody").post("/v1/runs", json={"run": "true"}).json()["id"]
    visitor.sign_in("submitter")
    refused = visitor.change("/runs/cancel", run=[str(own), str(other)])
    assert (refused.status_code, f"run {other} was submitted by somebody" in refused.text) == (403, True)
    assert visitor.get(f"/v1/runs/{own}").json()["jobs"]["queued"] == 1, "nothing was done by half"


def test_a_browser_gets_a_page_about_a_problem_and_a_program_gets_json(
    coordinator: CoordinatorProcess, visitor: Visitor
) -> None:
    page = visitor.get("/nothing", Accept="text/html,*/*")
    assert (page.status_code, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert visitor.get("/nothing", Accept="*/*").json()["error"]["code"] == "not_found"
    assert visitor.get("/v1/nothing", Accept="text/html").json()["error"]["code"] == "not_found"


def test_pages_and_their_files_name_no_other_host(coordinator: CoordinatorProcess, visitor: Visitor) -> None:
    page = visitor.get("/sign-in").text
    files = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert len(files) >= 3
    for file in files:
        answer = requests.get(coordinator.url + file, timeout=60)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["Cache-Control"]
        found = re.findall(r"https?://[^\"'\s)]+", answer.text)
        assert [url for url in found if url != "http://www.w3.org/2000/svg"] == []
