"""A private PostgreSQL cluster from Debian's binaries, on a free port of 127.0.0.1, removed after the test run."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

#: How many seconds a start or a stop may take: it may checkpoint hundreds of databases, on a busy disk.
SECONDS = "240"


def binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
    return found[-1].parent if found else None


class PostgresCluster:
    """A server of our own. `database()` gives the URL of a new, empty database."""

    def __init__(self, folder: Path, options: str = "") -> None:
        found = binaries()
        assert found is not None, "PostgreSQL is not installed: apt-get install postgresql"
        self._bin, self._folder, self._options = found, folder, options
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            folder.chmod(0o755)
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._as_user = [
                "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--",
            ]  # fmt: skip
        self._numbers = itertools.count(1)
        self._data = folder / "data"
        self._run("initdb", "-D", str(self._data), "-U", "deborgen", "-A", "trust", "-E", "UTF8", "--locale=C")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._bin / program), *arguments]
        subprocess.run(command, check=True, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> None:
        options = f"-h 127.0.0.1 -p {self.port} -k {self._folder} -c shared_buffers=32MB -c max_connections=200"
        options += self._options
        self._control("-o", options, "-l", str(self._folder / "log"), "start")
        self._wait_until_it_answers()

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is a crash: nothing is flushed, and recovery runs at the next start."""
        self._control("-m", mode, "stop")

    def _control(self, *words: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", SECONDS, *words)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://deborgen@127.0.0.1:{self.port}/{name}"

    def database(self) -> str:
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return


@contextlib.contextmanager
def running_cluster(options: str = "") -> Iterator[PostgresCluster]:
    # Not below pytest's own folder, which only its owner may enter: the server runs as another user.
    folder = Path(tempfile.mkdtemp(prefix="deborgen-postgres-"))
    cluster = PostgresCluster(folder, options)
    try:
        yield cluster
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            cluster.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresCluster]:
    """The cluster that the tests of this process share. Nobody stops it, so it need not flush anything to the disk."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed")
    with running_cluster(" -c fsync=off -c full_page_writes=off -c autovacuum=off") as cluster:
        yield cluster


@pytest.fixture
def own_postgres() -> Iterator[PostgresCluster]:
    """A cluster for a test that stops it. A stop of the shared one would flush the many databases of other tests."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed")
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres: PostgresCluster) -> str:
    """The URL of a database that nobody has used."""
    return postgres.database()
