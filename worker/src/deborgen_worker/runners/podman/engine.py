"""Podman's service over its socket: the only place that imports podman. Every call has a deadline of its own.

The containers are described in the service's own terms (see `spec.py`), because podman-py leaves out or ignores some of
what isolation needs.
"""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import requests
from podman import PodmanClient
from podman.errors import PodmanError

from deborgen_shared import headers
from deborgen_worker.runners.protocol import RunnerDown

QUICK = 10.0
SLOW = 60.0
PULL = 900.0


class EngineError(Exception):
    """Podman understood and refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """The calls that the runner makes, for any thread. A service that does not answer in time is `RunnerDown`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._local = threading.local()

    def call(self, method: str, path: str, *, seconds: float = QUICK, params: Any = None, body: Any = None) -> Any:
        """One request; the decoded answer, or None if it is empty."""
        options: dict[str, Any] = {"params": params, "timeout": (min(seconds, 5.0), seconds)}
        if body is not None:
            options |= {"data": json.dumps(body), "headers": {headers.CONTENT_TYPE: "application/json"}}
        try:
            response = getattr(self._client().api, method)(path, **options)
            status, text = response.status_code, response.text
        except (requests.RequestException, PodmanError, OSError) as error:
            self._forget_client()
            slow = isinstance(error, requests.Timeout)
            raise RunnerDown(
                "Podman does not answer in time" if slow else "Podman's service cannot be reached"
            ) from None
        if status >= 400:
            raise EngineError(status, _message(text) or f"status {status}")
        with contextlib.suppress(ValueError):
            return json.loads(text) if text.strip() else None
        return text

    def ping(self) -> None:
        self.call("get", "/_ping", seconds=5.0)

    def info(self) -> dict[str, Any]:
        return dict(self.call("get", "/info", seconds=SLOW))

    def create(self, spec: dict[str, Any]) -> str:
        return str(self.call("post", "/containers/create", body=spec, seconds=SLOW)["Id"])

    def start(self, container: str) -> None:
        self.call("post", f"/containers/{container}/start", seconds=SLOW)

    def inspect(self, container: str) -> dict[str, Any] | None:
        """All that is known of a container, or None if there is none."""
        try:
            return dict(self.call("get", f"/containers/{container}/json"))
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    def kill(self, container: str, signal: str) -> None:
        """Signal it; one that is not running or not there is no error."""
        try:
            self.call("post", f"/containers/{container}/kill", params={"signal": signal}, seconds=QUICK)
        except EngineError as error:
            over = any(words in str(error) for words in ("not running", "state improper", "can only kill running"))
            if error.status not in {404, 409} and not over:
                raise

    def pause(self, container: str) -> None:
        self.call("post", f"/containers/{container}/pause")

    def unpause(self, container: str) -> None:
        self.call("post", f"/containers/{container}/unpause")

    def remove(self, container: str) -> None:
        """Remove it with what it runs; one that is not there is no error."""
        try:
            params = {"force": "true", "v": "true", "timeout": "0"}
            self.call("delete", f"/containers/{container}", params=params, seconds=SLOW)
        except EngineError as error:
            if error.status != 404:
                raise

    def labelled(self, label: str) -> list[dict[str, Any]]:
        filters = json.dumps({"label": [label]})
        return list(self.call("get", "/containers/json", params={"all": "true", "filters": filters}) or [])

    def image_exists(self, image: str) -> bool:
        try:
            self.call("get", f"/images/{image}/exists")
        except EngineError as error:
            if error.status == 404:
                return False
            raise
        return True

    def pull(self, image: str) -> None:
        """Pull, and make sure that it came: the service reports a failure inside a successful answer."""
        text = self.call("post", "/images/pull", params={"reference": image, "quiet": "true"}, seconds=PULL)
        if not self.image_exists(image):
            raise EngineError(404, _pull_error(text) or f"{image} cannot be had")

    def _client(self) -> Any:
        if getattr(self._local, "client", None) is None:
            self._local.client = PodmanClient(base_url=self.url)
        return self._local.client

    def _forget_client(self) -> None:
        with contextlib.suppress(Exception):
            self._local.client.close()
        self._local.client = None


def _message(text: str) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        found = json.loads(text)
        return str(found.get("message") or found.get("cause") or "")
    return text.strip()[:500]


def _pull_error(answer: Any) -> str:
    if isinstance(answer, dict):
        return str(answer.get("error") or "")
    for line in str(answer or "").splitlines():
        with contextlib.suppress(ValueError, AttributeError):
            if error := json.loads(line).get("error"):
                return str(error)
    return ""
