"""Debian's registry of images, on 127.0.0.1. It can be stopped and started again on the same port."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from pathlib import Path
from types import TracebackType

import requests

from support.waiting import wait_until


class DockerRegistry:
    """`docker-registry serve`. With `login`, as `USER:PASSWORD`, it asks for these."""

    def __init__(self, folder: Path, login: str = "") -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        folder.mkdir(parents=True, exist_ok=True)
        self._config, self._log = folder / "registry.json", folder / "registry.log"
        config = {
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": str(folder / "images")}},
            "http": {"addr": self.address, "secret": "not used"},
        }
        if login:
            user, _, password = login.partition(":")
            made = subprocess.run(["htpasswd", "-Bbn", user, password], capture_output=True, text=True, check=True)
            (folder / "htpasswd").write_text(made.stdout)
            config["auth"] = {"htpasswd": {"realm": "pool", "path": str(folder / "htpasswd")}}
        self._config.write_text(json.dumps(config))  # JSON is YAML
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DockerRegistry:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> DockerRegistry:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(["docker-registry", "serve", str(self._config)], stdout=log, stderr=log)
        wait_until(self._answers, what="the registry to answer", log=self._log)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"http://{self.address}/v2/", timeout=5).status_code in {200, 401}
        return False
