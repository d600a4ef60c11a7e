"""Looks up host names, and keeps using the last answer while the name server does not respond.

A name server that hangs must not cost a worker its leases: the coordinator's address is most likely the same as a
minute ago. If the name server answers that the name does not exist, that answer counts.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

#: If a lookup takes longer than this, the last answer is used instead.
PATIENCE_SECONDS = 2.0
NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


class Names:
    """Looks up host names. Thread-safe; simultaneous callers for the same name share one lookup."""

    def __init__(self, lookup: Callable[..., list[Any]] | None = None, patience: float = PATIENCE_SECONDS) -> None:
        self._lookup, self._patience = lookup or socket.getaddrinfo, patience
        self._lock = threading.Lock()
        self._known: dict[str, list[str]] = {}
        self._in_flight: dict[str, Future[list[str]]] = {}

    def addresses(self, host: str, seconds: float) -> list[str]:
        """The host's addresses, best first. Raises `gaierror` if it has none, or if no answer comes in time."""
        if is_address(host):
            return [host]
        with self._lock:
            known = self._known.get(host)
            answer = self._in_flight.get(host) or self._start_lookup(host)
        try:
            return answer.result(min(self._patience, seconds) if known else seconds)
        except TimeoutError:
            error = socket.gaierror(socket.EAI_AGAIN, "the name server does not answer")
        except socket.gaierror as found:
            error = found
        if known and error.errno not in NO_SUCH_NAME:
            return known
        raise error

    def _start_lookup(self, host: str) -> Future[list[str]]:
        answer: Future[list[str]] = Future()
        try:
            threading.Thread(target=self._look_up, args=(host, answer), name="names", daemon=True).start()
        except RuntimeError as error:  # cannot start a thread: fail now instead of waiting for it
            answer.set_exception(socket.gaierror(socket.EAI_AGAIN, str(error)))
        else:
            self._in_flight[host] = answer
        return answer

    def _look_up(self, host: str, answer: Future[list[str]]) -> None:
        """Look the name up. An answer that is too late for this call serves the next one."""
        try:
            found = self._lookup(host, None, type=socket.SOCK_STREAM)
            addresses, failed = list(dict.fromkeys(str(each[4][0]) for each in found)), None
        except socket.gaierror as error:
            failed = error
        except UnicodeError as error:
            failed = socket.gaierror(socket.EAI_NONAME, str(error))
        except OSError as error:  # a local problem, such as too many open files
            failed = socket.gaierror(socket.EAI_AGAIN, str(error))
        with self._lock:
            del self._in_flight[host]
            if not failed:
                self._known[host] = addresses
        answer.set_exception(failed) if failed else answer.set_result(addresses)


def is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host.partition("%")[0])
            return True
    return False


class NamedAdapter(HTTPAdapter):
    """The adapter of requests, with connections that get their addresses from `Names`.

    urllib3 looks a name up inside `HTTPConnection._new_conn`, with no time limit of its own. This is the only place
    that overrides a private method of urllib3; tests/unit/shared/test_names.py fails when an upgrade changes it.
    """

    def __init__(self, names: Names, connections: int, context: ssl.SSLContext | None = None) -> None:
        self._names, self._context = names, context
        super().__init__(pool_connections=4, pool_maxsize=connections)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        if self._context is not None:
            kwargs["ssl_context"] = self._context
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = pools_of(self._names)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        if self._context is not None:
            kwargs["ssl_context"] = self._context
        return super().proxy_manager_for(proxy, **kwargs)


def pools_of(names: Names) -> dict[str, type[HTTPConnectionPool]]:
    """urllib3's pool classes by scheme, with connections that get their addresses from `names`."""

    class Named(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            name = self._dns_host
            seconds = self.timeout if isinstance(self.timeout, int | float) else PATIENCE_SECONDS
            try:
                addresses = names.addresses(name, seconds)
            except socket.gaierror as error:
                raise NameResolutionError(self.host, self, error) from error
            try:
                for address in addresses[:-1]:
                    self._dns_host = address
                    with contextlib.suppress(NewConnectionError, ConnectTimeoutError):
                        return super()._new_conn()
                self._dns_host = addresses[-1]
                return super()._new_conn()
            finally:
                self._dns_host = name

    class NamedAndEncrypted(Named, HTTPSConnection):
        pass

    class Pool(HTTPConnectionPool):
        ConnectionCls = Named

    class EncryptedPool(HTTPSConnectionPool):
        ConnectionCls = NamedAndEncrypted

    return {"http": Pool, "https": EncryptedPool}
