"""A person who visits the dashboard: over plain HTTP, without JavaScript.

with Visitor(coordinator) as visitor:
    visitor.sign_in("submitter")
    assert visitor.get("/runs").status_code == 200
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

import requests

from support.coordinator import CoordinatorProcess


class Visitor:
    """Keeps cookies, sends the Origin that a browser would send, and follows no redirect."""

    def __init__(self, coordinator: CoordinatorProcess) -> None:
        self.coordinator = coordinator
        self._session = requests.Session()
        self._session.trust_env = False
        self.cookies = self._session.cookies

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.close()

    def get(self, path: str, **headers: str) -> requests.Response:
        url = self.coordinator.url + path
        return self._session.get(url, headers={"Accept": "text/html", **headers}, allow_redirects=False, timeout=60)

    def stream(self, path: str) -> requests.Response:
        """An answer that stays open."""
        url = self.coordinator.url + path
        return self._session.get(url, headers={"Accept": "*/*"}, stream=True, allow_redirects=False, timeout=120)

    def post(self, path: str, form: dict[str, Any] | None, **headers: str) -> requests.Response:
        """Send a form as it is, from one of our own pages unless `headers` say otherwise."""
        url = self.coordinator.url
        sent = {"Origin": url, "Accept": "text/html", **headers}
        return self._session.post(url + path, form, headers=sent, allow_redirects=False, timeout=60)

    def change(self, path: str, **form: Any) -> requests.Response:
        """Send a form as our own page does."""
        return self.post(path, {"csrf": self.csrf(), **form})

    def sign_in(self, role: str, name: str | None = None) -> None:
        answer = self.post("/sign-in", {"token": self.coordinator.token(role, name)})
        assert answer.status_code == 303, answer.text

    def csrf(self) -> str:
        found = re.search(r'data-csrf="(\w+)"', self.get("/runs").text)
        assert found, "nobody is signed in"
        return found[1]
