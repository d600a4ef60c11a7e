"""Pushes an image to the pool's registry. This module uses only the standard library."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deborgen_worker.runners.builds.builder import Builder

#: Give up a registry that cannot be reached after this many seconds. A test may shorten this.
PUSH_SECONDS = float(os.environ.get("DEBORGEN_PUSH_SECONDS", "600"))
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
#: Words with which a registry refuses, or with which a connection can never work. Trying again would change nothing.
REFUSALS = {
    "unauthorized": "the registry does not accept the pool's credentials",
    "authentication required": "the registry does not accept the pool's credentials",
    "denied": "the registry does not accept the pool's credentials",
    "x509": "the registry's certificate is not trusted on this machine",
    "server gave http response": "the registry speaks plain HTTP: the pool's setting `registry` must begin with http://",
    "405": "the registry accepts no images",
}


class PushFailed(Exception):
    """The registry refused the image, or could not be reached for too long."""


def push(builder: Builder, digest: str, target: dict[str, Any]) -> dict[str, Any]:
    """Push an image, and return its address with the registry's own digest. While the registry cannot be reached, wait
    and try again: the image is not built again for that."""
    place = f"{builder.folder}/pushed"
    words = [builder.podman, "push", "--quiet", "--digestfile", place]
    if target["authfile"]:
        words += ["--authfile", target["authfile"]]
    if target["plain"]:
        words += ["--tls-verify=false"]
    end, pause = time.monotonic() + PUSH_SECONDS, FIRST_PAUSE
    while True:
        failure = attempt(builder, [*words, digest, f"docker://{target['name']}"])
        if not failure:
            with open(place) as file:  # noqa: PTH123
                return {"url": f"{target['name']}@{file.read().strip()}"}
        refusal = next((words for sign, words in REFUSALS.items() if sign in failure.lower()), "")
        if refusal or time.monotonic() + pause > end:
            raise PushFailed(refusal or "the registry cannot be reached")
        builder.say(f"the registry cannot be reached; the push is tried again in {pause:g} s")
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, 2 * pause)


def attempt(builder: Builder, words: list[str]) -> str:
    """Push once; why it failed, if it did. Podman's own words stay on this machine: they may name what answered."""
    env = {**os.environ, "TMPDIR": builder.plan["temporary"]}
    child = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env
    )
    builder.child = child
    said = child.communicate()[1].decode(errors="replace")
    builder.child = None
    return "" if child.returncode == 0 else said or f"exit code {child.returncode}"
