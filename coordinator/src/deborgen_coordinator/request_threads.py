"""Threads for requests: who gets one, and what it does.

A request gets a thread when it has arrived and it is its sender's turn: nobody can have more than a few threads, and
some threads serve only the calls that keep the leases of workers alive. A thread does not wait for a client. Only
uploads and downloads of many bytes do, and only a few of them at a time. A client that sends its next request at once
keeps its thread, because switching threads can cost more than the request.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Any

from gunicorn.http.errors import NoMoreData

from deborgen_coordinator.connections import After, ClientConnection
from deborgen_coordinator.event_loop import EventLoop
from deborgen_coordinator.framing import PatientRequest, PatientResponse, answer_of
from deborgen_coordinator.http.answers import refuse
from deborgen_coordinator.http.bodies import BodyAwaited
from deborgen_coordinator.http.live import LiveStream
from deborgen_coordinator.http.streams import Transfer
from deborgen_coordinator.operations.renewal_waits import RenewalWaits
from deborgen_coordinator.shares import Share, Turns, quarter
from deborgen_shared import headers
from deborgen_shared.errors import Code, Refusal

#: One token has at most this many threads at once, even if more are free. More threads would compete for Python's lock
#: and slow everybody down.
THREADS_EACH = 8
#: This many threads serve only heartbeats, results and registrations of workers, in addition to those of the settings.
RENEWAL_THREADS = 8
#: One worker may have this many heartbeats, results and registrations in progress at once.
RENEWALS_EACH = 4
#: The bodies that are arriving may need this much memory.
BODY_BYTES = 64 * 2**20
#: A thread serves at most this many requests of one client in a row before other clients get a turn.
MOST_IN_A_ROW = 16

_SOON = {headers.RETRY_AFTER: "2"}
#: The answer to a body for which there is no memory now.
_NO_MEMORY = refuse(
    Refusal(
        Code.SLOW_DOWN,
        "too many large bodies are arriving at once",
        "try again when your other requests are answered",
        headers=_SOON,
    )
)


class PatientWorker(EventLoop):
    """The serving process, which gunicorn calls a worker: its event loop, and its threads.

    `renewal_waits` is told how long the calls that keep leases alive wait for their answers.
    """

    renewal_waits: RenewalWaits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        threads = self.cfg.threads
        self.turns: Turns[ClientConnection] = Turns(threads, min(quarter(threads), THREADS_EACH))
        self.renewal_turns: Turns[ClientConnection] = Turns(threads + RENEWAL_THREADS, RENEWALS_EACH)
        self.connections = Share(self.cfg.worker_connections)
        # The calls that keep leases alive have their own memory, as they have their own threads.
        self.bodies = {renews: Share(BODY_BYTES) for renews in (False, True)}

    def get_thread_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.cfg.threads + RENEWAL_THREADS)

    # In the event loop

    def notify(self) -> None:
        # While the event loop is stuck, every heartbeat waits.
        self.renewal_waits.begin(self)
        super().notify()

    def enqueue_req(self, conn: ClientConnection) -> None:
        """Give the request a thread, at once or when it is its sender's turn."""
        if not self.attribute(conn):
            message = f"too many connections are open: one token may have {self.connections.each}"
            self.refuse(conn, Refusal(Code.SLOW_DOWN, message, "close some of them", headers=_SOON))
            return
        turns = self.renewal_turns if conn.head.renews else self.turns
        conn.turn = turns, conn.person
        if turns.start(conn.person, conn):
            self.start(conn)

    def attribute(self, conn: ClientConnection) -> bool:
        """Count the connection for the sender of its newest request; False if the sender has too many."""
        if conn.person != conn.owner:
            if conn.owner is not None:
                self.connections.give_back(conn.owner)
            conn.owner = conn.person if self.connections.take(conn.person) else None
        return conn.owner is not None

    def start(self, conn: ClientConnection) -> None:
        if conn.head.renews:
            self.renewal_waits.begin(conn)
        super().enqueue_req(conn)

    def finish_request(self, conn: ClientConnection, future: Future[After]) -> None:
        turns, person = conn.turn
        for each in turns.end(person):
            self.start(each)
        self.renewal_waits.end(conn)
        try:
            after = After.CLOSE if future.cancelled() else future.result()
            if after is not After.AWAIT:
                self.release_body(conn)
            self.go_on(conn, after)
        except Exception:
            self.drop(conn)

    def release_body(self, conn: ClientConnection) -> None:
        if conn.body_share is not None:
            conn.body_share.give_back(conn.owner, conn.body_bytes)
            conn.body_share = None

    def forget(self, conn: ClientConnection) -> None:
        self.release_body(conn)
        super().forget(conn)
        if conn.owner is not None:
            self.connections.give_back(conn.owner)
            conn.owner = None

    # In the request's thread

    def handle(self, conn: ClientConnection) -> After:
        """Serve the request, and requests that follow at once."""
        for _ in range(MOST_IN_A_ROW):
            after = self.serve(conn)
            if after is not After.KEEP or conn.unsent or not (self.alive and conn.has_next()):
                break
            if conn.head.renews:
                self.renewal_waits.end(conn)
                self.renewal_waits.begin(conn)
        return after

    def serve(self, conn: ClientConnection) -> After:
        request = None
        try:
            request = conn.next_request()
            return self.handle_request(request, conn)
        except (NoMoreData, StopIteration, OSError) as problem:
            self.log.debug("a client has disconnected: %s", problem)
        except Exception as problem:
            self.handle_error(request, conn, conn.client, problem)
        return After.CLOSE

    def handle_request(self, request: PatientRequest, conn: ClientConnection) -> After:
        """Answer the request, without gunicorn's unused hooks."""
        began = datetime.now()
        response, environ = PatientResponse(request, conn, self.cfg), request.environ(conn)
        if not self.alive or len(self.keepalived_conns) >= self.max_keepalived:
            response.force_close()
        try:
            try:
                chunks = self.wsgi(environ, response.start_response)
            except BodyAwaited as awaited:
                if self.take_body(conn, awaited.length):
                    conn.await_body(request, awaited.length)
                    return After.AWAIT
                chunks = _NO_MEMORY(environ, response.start_response)
            try:
                if isinstance(chunks, LiveStream):
                    return self.begin_stream(chunks, response, conn)
                if isinstance(chunks, Transfer):
                    response.sock = conn.wait_for_reader()
                for chunk in chunks:
                    response.write(chunk)
                response.close()
            finally:
                self.log.access(response, request, environ, datetime.now() - began)
                if hasattr(chunks, "close") and conn.stream is None:
                    chunks.close()
        except OSError:
            raise
        except Exception:
            if not response.headers_sent:
                raise
            # A part of the answer may have been sent, and a second answer would look like the rest of it.
            self.log.exception("Error handling request")
            return After.CLOSE
        if response.should_close() or request.lacks_body() or not (request.is_read() or conn.parser.finish_body()):
            return After.CLOSE
        conn.parser.mesg = None  # the parser has no need to check it again
        return After.KEEP

    def take_body(self, conn: ClientConnection, length: int) -> bool:
        """Count the memory for the body; False if there is none left."""
        share = self.bodies[conn.head.renews]
        if not share.take(conn.owner, length):
            return False
        conn.body_share, conn.body_bytes = share, length
        return True

    def begin_stream(self, stream: LiveStream, response: PatientResponse, conn: ClientConnection) -> After:
        """Send the head of a live stream. Then the thread is free, and the stream goes on without one."""
        response.force_close()
        response.begin()
        conn.chunked = response.chunked
        if stream.greeting:
            conn.sendall(conn.framed(stream.greeting))
        conn.stream = stream
        return After.STREAM

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer a request that is not valid HTTP with a refusal in the usual shape."""
        internal = type(exc).__module__ != "gunicorn.http.errors"
        if internal:
            self.log.exception("Error handling request")
        status, code, message = (
            (500, "internal", "the coordinator failed unexpectedly; its log says why")
            if internal
            else (Code.MALFORMED.status, str(Code.MALFORMED), f"this is not a valid HTTP request: {exc}")
        )
        try:
            client.sendall(answer_of(status, {"error": {"code": code, "message": message, "hint": ""}}))
        except OSError:
            self.log.debug("the refusal could not be sent")
