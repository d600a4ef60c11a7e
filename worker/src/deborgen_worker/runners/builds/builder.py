"""The program of a build: `python -I -S builder.py run PLAN`. It uses only the standard library.

The supervisor starts it like a plain process. So a build has a log, a time limit and an end that outlive the worker. It
makes the image with `podman build` as a child process, then pushes it to the pool's registry or packs it into an
archive, and writes what it made to `image.json` beside the plan. TERM ends it without leaving anything behind.

With `kill`, `freeze` or `wake` and a build's id, it does that to the processes of a build: they are not in the process
group that the supervisor signals.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, NoReturn

if not __package__:  # with `-I -S` Python does not find our packages
    sys.path.append(os.path.abspath(f"{__file__}/../../../.."))  # noqa: PTH100

from deborgen_worker.runners.builds import cgroups, containerfile, leftovers
from deborgen_worker.runners.builds.pushing import PushFailed, push
from deborgen_worker.runners.containers import archives

OUTCOME = "image.json"
#: Exit codes: the Containerfile is refused; the image was made, but could not be kept; the build was ended by TERM.
REFUSED, NOT_KEPT, TERMINATED = 125, 75, 143
#: If nothing of a build that is being ended runs in a container, Podman gets KILL after this many seconds.
PATIENCE_SECONDS = 2.0


class Builder:
    """One build, as its plan says."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(f"{folder}/build.json", "rb") as file:  # noqa: PTH123
            self.plan: dict[str, Any] = json.load(file)
        self.build: str = self.plan["id"]
        self.podman: str = self.plan["podman"]
        self.group = leftovers.group_name(self.build, self.plan["systemd"])
        self.child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self.end)
        began = time.monotonic()
        identity = f"{self.folder}/id"
        if wrong := self.check():
            self.say(wrong)
            return REFUSED
        cgroups.limit_processes(self.plan["parent"], self.plan["pids"])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(identity)  # noqa: PTH108
        code = self.call(*self.command(identity))
        # Podman may end with 0 although it was interrupted, but then it has not written the image's id.
        if code != 0 or not os.path.exists(identity):  # noqa: PTH110
            leftovers.sweep(self.build, self.podman)
            return code or 1
        with open(identity) as file:  # noqa: PTH123
            digest = file.read().strip().removeprefix("sha256:")
        made: dict[str, Any] = {"digest": digest, "size": self.size_of(digest), "seconds": time.monotonic() - began}
        try:
            made |= self.keep(digest)
        except archives.CannotPack as error:
            self.say(str(error))
            leftovers.sweep(self.build, self.podman)
            write(f"{self.folder}/{OUTCOME}", {"failure": str(error)})
            return NOT_KEPT
        leftovers.sweep(self.build, self.podman, images=False)
        write(f"{self.folder}/{OUTCOME}", made)
        return 0

    def check(self) -> str:
        """Why the build is refused; empty if it is not. Nothing is fetched past the job's network."""
        path = self.plan["containerfile"]
        try:
            with open(path, errors="replace") as file:  # noqa: PTH123
                text = file.read()
        except OSError as error:
            return f"the file {os.path.relpath(path, self.plan['context'])} cannot be read: {error.strerror}"
        source = containerfile.remote_source(text)
        for base in [] if source else containerfile.base_images(text, self.plan["args"]):
            source = source or leftovers.remote_source_in(base, self.podman)
        return source and f"ADD {source} is refused: use COPY, or fetch it in a RUN instruction"

    def command(self, identity: str) -> list[str]:
        plan = self.plan
        words = [self.podman, "build", "--force-rm", "--pull=never", "--http-proxy=false", "--layers",
                 "--network", plan["network"], "--cgroup-parent", plan["parent"],
                 "--label", f"{leftovers.LABEL}={self.build}", "--iidfile", identity]  # fmt: skip
        words += plan["limits"]
        for name, value in plan["args"].items():
            words += ["--build-arg", f"{name}={value}"]
        if plan["target"]:
            words += ["--target", plan["target"]]
        if plan["platform"]:
            words += ["--platform", plan["platform"]]
        return [*words, "--file", plan["containerfile"], plan["context"]]

    def keep(self, digest: str) -> dict[str, Any]:
        """Push the image to the registry. Without one, or if that fails, pack it into an archive for the pool."""
        if self.plan["push"]:
            try:
                if refused := self.plan["push"].get("refused"):
                    raise PushFailed(refused)
                return push(self, digest, self.plan["push"])
            except PushFailed as failure:
                self.say(f"{failure}; the image is kept in the pool instead")
                return self.pack(digest) | {"warning": str(failure)}
        return self.pack(digest)

    def pack(self, digest: str) -> dict[str, Any]:
        layout = f"{self.plan['temporary']}/layout"
        if self.call(self.podman, "save", "--quiet", "--format", "oci-dir", "--output", layout, digest, quiet=True):
            raise archives.CannotPack("the image could not be saved")
        archives.pack(layout, self.plan["archive"])
        return {"archive": True}

    def size_of(self, digest: str) -> int:
        text = leftovers.run(self.podman, "image", "inspect", "--format", "{{.Size}}", digest).strip()
        return int(text) if text.isdigit() else 0

    def call(self, *words: str, quiet: bool = False) -> int:
        """Run a command. What it prints belongs to the log, unless it is `quiet`."""
        output = subprocess.DEVNULL if quiet else None
        env = {**os.environ, "TMPDIR": self.plan["temporary"]}
        self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, env=env)
        code = self.child.wait()
        self.child = None
        return code if code >= 0 else 128 - code

    def end(self, _number: int, _frame: object) -> NoReturn:
        """End the build. Podman removes its working containers if the instruction that it waits for is killed."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        patience = time.monotonic() + PATIENCE_SECONDS
        while self.child is not None and not has_ended(self.child.pid):
            if not cgroups.send(self.group, signal.SIGKILL) and time.monotonic() > patience:
                self.child.kill()
            time.sleep(0.05)
        leftovers.sweep(self.build, self.podman)
        os._exit(TERMINATED)

    def say(self, text: str) -> None:
        os.write(1, f"[deborgen: {text}]\n".encode())


def has_ended(pid: int) -> bool:
    """Whether our child has ended. It is waited for elsewhere."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def outcome_of(folder: str) -> dict[str, Any]:
    """What a build has made, as it wrote it down; empty if it has made nothing."""
    with contextlib.suppress(OSError, ValueError), open(f"{folder}/{OUTCOME}", "rb") as file:  # noqa: PTH123
        return dict(json.load(file))
    return {}


def write(path: str, value: dict[str, Any]) -> None:
    """Write a file so that a later reader finds all of it or nothing."""
    with open(f"{path}.part", "w") as file:  # noqa: PTH123
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.part", path)  # noqa: PTH104


def steer(verb: str, build: str) -> None:
    """Do to the containers of a build what the supervisor does to its program."""
    if verb == "kill":
        leftovers.sweep(build)
        return
    number = signal.SIGSTOP if verb == "freeze" else signal.SIGCONT
    for systemd in (False, True):
        cgroups.send(leftovers.group_name(build, systemd), number)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        sys.exit(Builder(sys.argv[2]).run())
    steer(sys.argv[1], sys.argv[2])
