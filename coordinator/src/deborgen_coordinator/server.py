"""Serving: gunicorn with one serving process, which gunicorn calls a worker, and many threads.

The arbiter process holds the sockets and restarts the serving process. The serving process holds the database, the
writer and the lease check, and serves all requests. Both processes hold the lock of the data directory, so that no
other coordinator can use it while either of them lives.
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
from deborgen_coordinator.operations import artifact_store
from deborgen_coordinator.operations.tokens import list_tokens
from deborgen_coordinator.request_threads import PatientWorker
from deborgen_coordinator.settings import CoordinatorSettings

log = logging.getLogger("deborgen.server")

#: A stop takes at most this many seconds; requests that are still in progress are then cut off.
GRACE_SECONDS = 8
#: Close a connection that has been idle for this many seconds.
KEEP_ALIVE_SECONDS = 75
#: Keep this many file descriptors for files and databases; the others are for connections.
FILES_BESIDES_CONNECTIONS = 128
#: Wait this many seconds for the lock of the data directory.
LOCK_SECONDS = 3.0
#: macOS reports no limit of open files, but allows a process this many (OPEN_MAX).
MACOS_FILES = 10_240


class CoordinatorCannotStart(Exception):
    """Why the coordinator does not start, in one line for the person who started it."""


class QuietLogger(Logger):  # type: ignore[misc]
    """Sends gunicorn's messages to the coordinator's log."""

    def setup(self, cfg: Any) -> None:
        self.error_log = logging.getLogger("gunicorn.error")
        self.access_log = logging.getLogger("gunicorn.access")
        self.error_log.propagate = self.access_log.propagate = True
        if logging.getLogger().level > logging.DEBUG:
            self.error_log.setLevel(logging.WARNING)

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        if self.access_log.isEnabledFor(logging.DEBUG):
            milliseconds = request_time.total_seconds() * 1000
            # Only the path: queries are private, and headers hold secrets.
            self.access_log.debug(
                "%s %s %s %.1f ms", environ.get("REQUEST_METHOD"), environ.get("PATH_INFO"), resp.status, milliseconds
            )

    def reopen_files(self) -> None:
        pass

    def close_on_exec(self) -> None:
        pass


class ServingWorker(PatientWorker):
    """The serving process, in which the coordinator runs."""

    def init_process(self) -> None:
        _die_with_parent(self.ppid)
        super().init_process()

    def load_wsgi(self) -> None:
        self.coordinator = app.create_app(self.app.settings)
        self.wsgi = self.coordinator.flask.wsgi_app
        self.on_stop = self.coordinator.hang_up
        self.renewal_waits = self.coordinator.ctx.renewal_waits

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
            data = f"--database {settings.database}" if not settings.uses_sqlite else f"--data-dir {settings.data_dir}"
            print(  # noqa: T201
                "There is no token yet. Create the first one with:\n"
                f"  deborgen-coordinator token create --role admin --name YOU {logs.masked(data)}",
                flush=True,
            )


class SingleWorkerArbiter(Arbiter):  # type: ignore[misc]
    """gunicorn's arbiter with exactly one serving process: it ignores the signals that would start another one."""

    def handle_hup(self) -> None:
        log.warning("ignored a signal that would start another process; restart the coordinator to change its settings")

    handle_ttin = handle_ttou = handle_usr2 = handle_hup


class Server(BaseApplication):  # type: ignore[misc]
    """gunicorn, configured only from our settings: its own files and variables are ignored."""

    def __init__(self, settings: CoordinatorSettings) -> None:
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
            # A machine that wakes up from sleep must not lose its serving process.
            "timeout": 300,
            "logger_class": QuietLogger,
            "http_parser": "python",
            "limit_request_line": 8190,
            "limit_request_fields": 64,
            # Trust no proxy's headers: nothing here depends on them.
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
        SingleWorkerArbiter(self).run()

    def load(self) -> Any:
        raise NotImplementedError("the serving process starts the application")


def serve(settings: CoordinatorSettings) -> None:
    """Serve until stopped. A problem at the start is reported in one line."""
    logs.configure(settings.log_format, settings.log_level)
    try:
        Path(settings.data_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise CoordinatorCannotStart(
            f"cannot create the data directory {settings.data_dir}: {problem.strerror}"
        ) from None
    os.environ.pop("SCRIPT_NAME", None)
    with lock_data_dir(settings):
        # Migrate the database. If it cannot be used, report that here, before gunicorn starts.
        context = app.open_context(settings)
        try:
            artifact_store.begin(context)
        finally:
            context.store.close()
        try_to_listen(settings.listen)
        Server(settings).run()


def try_to_listen(address: str, *, any_port: bool = False) -> None:
    """Check whether the address can be used, to report it in one line before gunicorn starts.

    With `any_port`, only whether the machine has the address: a coordinator may be using its port already.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        wanted = 0 if any_port else int(port)
        family, kind, _, _, target = socket.getaddrinfo(host, wanted, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
    except OSError as problem:
        raise CoordinatorCannotStart(
            f"cannot listen on {address}: {problem.strerror}; choose another address with --listen"
        ) from None


@contextlib.contextmanager
def lock_data_dir(settings: CoordinatorSettings) -> Iterator[None]:
    """With SQLite, let only one coordinator use a data directory. The lock ends with the coordinator's last process."""
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
                # The processes of a coordinator that was just killed may take a moment to end.
                if time.monotonic() > deadline:
                    lock.seek(0)
                    pid = lock.read(20).strip()
                    raise CoordinatorCannotStart(
                        f"another coordinator{f' (process {pid})' if pid else ''} is using {settings.data_dir}; "
                        "stop it first, or choose another directory with --data-dir"
                    ) from None
                time.sleep(0.05)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _die_with_parent(parent: int) -> None:
    """End this serving process when its arbiter ends. Otherwise it would keep the data directory locked.

    Linux does this at once. Elsewhere the serving process checks for its arbiter once per second.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _connections(wanted: int) -> int:
    """The number of connections that the settings and the limit of open files allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for higher in (hard, MACOS_FILES) if soft != hard else ():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (higher, hard))
            soft = higher
            break
    return wanted if soft == resource.RLIM_INFINITY else max(8, min(wanted, soft - FILES_BESIDES_CONNECTIONS))
