"""Serving: gunicorn with one worker process and many threads.

The first process holds the sockets and restarts the second; the second holds the database, the writer, the sweep and
all requests. Whoever of the two lives holds the lock of the data directory, so that no other coordinator starts on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from deborgen_coordinator import app, logs
from deborgen_coordinator.connections import PatientWorker
from deborgen_coordinator.operations.tokens import list_tokens
from deborgen_coordinator.settings import Settings

log = logging.getLogger("deborgen.server")

#: A stop takes at most this long; whatever is then still under way is cut.
GRACE_SECONDS = 8
KEEP_ALIVE_SECONDS = 75
LOCK_SECONDS = 3.0
#: macOS says that files may be opened without limit, and allows a process this many (OPEN_MAX).
MACOS_FILES = 10_240


class CannotStart(Exception):
    """Why the coordinator does not start, in one sentence for whoever started it."""


class QuietLogger(Logger):  # type: ignore[misc]
    """gunicorn's own words, through the coordinator's log."""

    def setup(self, cfg: Any) -> None:
        self.error_log = logging.getLogger("gunicorn.error")
        self.access_log = logging.getLogger("gunicorn.access")
        self.error_log.propagate = self.access_log.propagate = True
        if logging.getLogger().level > logging.DEBUG:
            self.error_log.setLevel(logging.WARNING)

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        if self.access_log.isEnabledFor(logging.DEBUG):
            milliseconds = request_time.total_seconds() * 1000
            # The path alone: what people search for is nobody's business, and headers hold secrets.
            self.access_log.debug(
                "%s %s %s %.1f ms", environ.get("REQUEST_METHOD"), environ.get("PATH_INFO"), resp.status, milliseconds
            )

    def exception(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        if str(msg).startswith("Socket error"):
            self.error_log.debug(msg, *args, **kwargs)
        else:
            self.error_log.exception(msg, *args, **kwargs)

    def reopen_files(self) -> None:
        pass

    def close_on_exec(self) -> None:
        pass


class ServingWorker(PatientWorker):
    """The process that does the work: the coordinator lives here, from after the fork to the end."""

    def init_process(self) -> None:
        _die_with_parent(self.ppid)
        super().init_process()

    def load_wsgi(self) -> None:
        self.coordinator = app.create_app(self.app.settings)
        self.wsgi = self.coordinator.flask.wsgi_app
        self.on_stop = self.coordinator.hang_up

    def run(self) -> None:
        self.announce()
        try:
            super().run()
        finally:
            self.coordinator.close()

    def announce(self) -> None:
        host, port = self.sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"deborgen-coordinator is ready at http://{shown}:{port}", flush=True)  # noqa: T201
        if not list_tokens(self.coordinator.ctx).items:
            settings = self.app.settings
            place = f"--database {settings.database}" if not settings.uses_sqlite else f"--data-dir {settings.data_dir}"
            print(  # noqa: T201
                "There is no token yet. Make the first one with:\n"
                f"  deborgen-coordinator token create --role admin --name YOU {logs.masked(place)}",
                flush=True,
            )


class Keeper(Arbiter):  # type: ignore[misc]
    """The first process. One worker, never two: the signals that make gunicorn start another are not for us."""

    def handle_hup(self) -> None:
        log.warning("HUP changes nothing: restart the coordinator to change its settings")

    handle_ttin = handle_ttou = handle_usr2 = handle_hup


class Server(BaseApplication):  # type: ignore[misc]
    """gunicorn, configured from the settings alone: no file and no variable of its own changes it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        super().__init__()

    def load_config(self) -> None:
        settings = self.settings
        options = {
            "bind": [settings.listen],
            "workers": 1,
            "worker_class": ServingWorker,
            "threads": settings.threads,
            "worker_connections": _connections(settings.max_connections),
            "keepalive": KEEP_ALIVE_SECONDS,
            "graceful_timeout": GRACE_SECONDS,
            # A stopped machine that wakes up must not lose its worker for it.
            "timeout": 300,
            "logger_class": QuietLogger,
            "http_parser": "python",
            "limit_request_line": 8190,
            "limit_request_fields": 64,
            # Headers of proxies are believed from nobody: nothing here depends on them.
            "forwarded_allow_ips": "",
            "forwarder_headers": "",
            "secure_scheme_headers": {},
            "control_socket_disable": True,
            "proc_name": "deborgen-coordinator",
            "umask": 0o077,
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        Keeper(self).run()

    def load(self) -> Any:
        raise NotImplementedError("the worker starts the application")


def serve(settings: Settings) -> None:
    """Serve until told to stop. Whatever keeps it from starting is one sentence."""
    logs.configure(settings.log_format, settings.log_level)
    try:
        Path(settings.data_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise CannotStart(f"The data directory {settings.data_dir} cannot be made: {problem.strerror}.") from None
    os.environ.pop("SCRIPT_NAME", None)
    with lock_data_dir(settings):
        # Bring the database up to date, and find out here, where it can be said, if it cannot be used.
        context = app.open_context(settings)
        context.store.close()
        _try_to_listen(settings.listen)
        Server(settings).run()


def _try_to_listen(address: str) -> None:
    """Find out here, where it can be said in a sentence, whether the address can be had."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as problem:
        raise CannotStart(f"The coordinator cannot listen on {address}: {problem.strerror}.") from None


@contextlib.contextmanager
def lock_data_dir(settings: Settings) -> Iterator[None]:
    """With SQLite one coordinator works on a data directory at a time. The lock ends with the last of its processes."""
    if not settings.uses_sqlite:
        yield
        return
    with (Path(settings.data_dir) / "coordinator.lock").open("a+") as lock:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # The processes of a coordinator that was just killed may take a moment to be gone.
                if time.monotonic() > deadline:
                    lock.seek(0)
                    pid = lock.read(20).strip()
                    raise CannotStart(
                        f"Another coordinator{f' (process {pid})' if pid else ''} is using {settings.data_dir}. "
                        "Stop it first, or give this one a data directory of its own with --data-dir."
                    ) from None
                time.sleep(0.05)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _die_with_parent(parent: int) -> None:
    """A worker without its first process would hold the data directory for nobody.

    Linux ends it at once. Elsewhere the worker looks for its first process once per second.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _connections(wanted: int) -> int:
    """As many as the settings and the limit of open files allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for more in (hard, MACOS_FILES) if soft != hard else ():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
            break
    return wanted if soft == resource.RLIM_INFINITY else max(8, min(wanted, soft - 128))
