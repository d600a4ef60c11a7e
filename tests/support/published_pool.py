"""A pool in containers, seen from outside, through the address of its coordinator alone."""

from __future__ import annotations

from typing import Any

import requests


class PublishedPool:
    """The API at the published port. A subclass says where that is."""

    def __init__(self) -> None:
        self.http = requests.Session()
        self.http.trust_env = False

    @property
    def url(self) -> str:
        raise NotImplementedError

    def login(self, token: str) -> None:
        self.http.headers["Authorization"] = f"Bearer {token}"

    def healthy(self) -> bool:
        try:
            return self.http.get(f"{self.url}/health", timeout=5).status_code == 200
        except requests.RequestException:
            return False

    def submit(self, **document: Any) -> int:
        """Submit a job file. Its jobs have one attempt unless it sets more: a second one would hide what went wrong."""
        answer = self.http.post(f"{self.url}/v1/runs", json={"max_attempts": 1, **document}, timeout=20)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    def job(self, run: int) -> dict[str, Any]:
        """The first job of the run."""
        return dict(self.http.get(f"{self.url}/v1/jobs/{run}.1", timeout=20).json())

    def log(self, run: int) -> bytes:
        """The log of the first job of the run."""
        return self.http.get(f"{self.url}/v1/jobs/{run}.1/log", timeout=20).content
