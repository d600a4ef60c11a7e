"""Forms of the dashboard: nothing that somebody typed is lost or changed, and bad input is refused with a reason."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

from support.browser import Visitor
from support.coordinator import CoordinatorProcess


@pytest.fixture
def visitor(coordinator: CoordinatorProcess) -> Iterator[Visitor]:
    with Visitor(coordinator) as session:
        session.sign_in("submitter")
        yield session


@pytest.mark.parametrize("text", ["\nrun: true\nfoo: 1\n", "run: |\n\techo <b> & \u202e\n  x\nfoo: 1"])
def test_a_job_file_with_a_mistake_comes_back_as_it_was_typed(visitor: Visitor, text: str) -> None:
    """Seen to fail when line breaks came back as signs."""
    page = visitor.change("/submit", text=text, do="check", once="a" * 12).text
    found = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert found, page
    assert html.unescape(found[1]).replace("\r\n", "\n") == text


def test_a_secret_is_set_and_removed_and_its_value_is_never_shown(visitor: Visitor) -> None:
    assert visitor.change("/me/secrets", name="A KEY", value="correct horse").status_code == 400
    assert visitor.change("/me/secrets", name="KEY", value="short").status_code == 400
    assert visitor.change("/me/secrets", name="KEY", value="correct horse", shared="1").status_code == 403
    assert visitor.change("/me/secrets", name="KEY", value="correct horse").headers["Location"] == "/me?done=set"
    page = visitor.get("/me?done=set").text
    assert "KEY" in page
    assert "The secret is set." in page
    assert "correct horse" not in page
    assert visitor.change("/me/secrets/KEY/remove").status_code == 303
    assert "KEY</code>" not in visitor.get("/me").text


def test_people_revoke_their_own_tokens_and_no_others(coordinator: CoordinatorProcess, visitor: Visitor) -> None:
    admin = coordinator.client("admin")
    own, other = (
        admin.post("/v1/tokens", json={"role": "submitter", "name": name}).json()
        for name in ("test-submitter", "somebody")
    )
    page = visitor.get("/me").text
    assert own["id"] in page
    assert other["id"] not in page
    assert visitor.change(f"/me/tokens/{other['id']}/revoke").status_code == 404
    assert visitor.change(f"/me/tokens/{own['id']}/revoke").status_code == 303
    left = {token["id"] for token in admin.get("/v1/tokens").json()["items"]}
    assert own["id"] not in left
    assert other["id"] in left


def test_a_form_that_is_too_large_or_unreadable_is_refused(visitor: Visitor) -> None:
    assert visitor.post("/submit", {"text": "x" * (5 << 20)}).status_code == 413
    assert visitor.post("/runs/cancel", {f"field{n}": "1" for n in range(3000)}).status_code == 400


def test_only_an_admin_steers_a_machine(coordinator: CoordinatorProcess, visitor: Visitor) -> None:
    assert visitor.change("/workers/nobody/steer", order="pause").status_code == 403
    with Visitor(coordinator) as admin:
        admin.sign_in("admin")
        assert admin.change("/workers/nobody/steer", order="pause").status_code == 404
        assert admin.change("/workers/nobody/steer", order="burn").status_code == 400


@pytest.mark.parametrize(
    ("words", "leads_to"),
    [
        ("42", "/runs/42"),
        ("42.7", "/jobs/42.7"),
        ("42.7/2", "/jobs/42.7?attempt=2"),
        ("project=thesis", "/runs?label=project%3Dthesis"),
    ],
)
def test_what_the_field_at_the_top_finds(visitor: Visitor, words: str, leads_to: str) -> None:
    assert visitor.get(f"/find?q={words}").headers["Location"] == leads_to


def test_what_the_field_at_the_top_does_not_find(visitor: Visitor) -> None:
    for words in ("no such thing", "//evil.example", "%3Cb%3E"):
        assert visitor.get(f"/find?q={words}").status_code in (303, 404)
        assert "evil" not in visitor.get(f"/find?q={words}").headers.get("Location", "")
