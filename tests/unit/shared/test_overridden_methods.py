"""Digests of the private library methods that deborgen overrides or relies on.

An upgrade that changes one of them fails here. Read the change, check whether the override is still correct (in the
coordinator `event_loop.py`, `request_threads.py`, `connections.py` and `framing.py` for gunicorn,
`http/application.py` for Flask; in shared `client/names.py` for urllib3 and requests), and record the new digest.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from functools import reduce

import pytest

OVERRIDDEN = {
    "flask.app:Flask.wsgi_app": "b813e40b29d1d704",
    "gunicorn.http.message:Message.__init__": "14b64a40f29fd0c4",
    "gunicorn.http.message:Message.set_body_reader": "e3ba33f5ac7ca542",
    "gunicorn.http.message:Request.__init__": "f1feb7cdea229ec5",
    "gunicorn.http.message:Request.set_body_reader": "db5c46d4c717f58a",
    "gunicorn.http.message:Request.should_close": "37c454bfb3e36316",
    "gunicorn.http.parser:Parser.__next__": "b8536520e95854d6",
    "gunicorn.http.parser:Parser.finish_body": "54c5d0d28c2626ea",
    "gunicorn.http.unreader:SocketUnreader.chunk": "9f62532259f8468e",
    "gunicorn.http.unreader:Unreader.take_buffered": "89cef5e60e6f09e1",
    "gunicorn.http.wsgi:Response._emit_body": "df723e865a1e5adc",
    "gunicorn.http.wsgi:Response.close": "1e78fc7777ff09ae",
    "gunicorn.http.wsgi:Response.send_headers": "7aff3b7d004fc17b",
    "gunicorn.http.wsgi:Response.write": "a13659ff072c00e1",
    "gunicorn.http.wsgi:create": "2c35d4a2dc629ede",
    "gunicorn.workers.base:Worker.handle_error": "75426448389bbac9",
    "gunicorn.workers.base:Worker.notify": "7f509bc4046b0e97",
    "gunicorn.workers.gthread:PollableMethodQueue.defer": "4d722900967b8ad2",
    "gunicorn.workers.gthread:TConn.init": "5ff3d4ba451cfdf3",
    "gunicorn.workers.gthread:ThreadWorker.accept": "f8dcead3dce5c851",
    "gunicorn.workers.gthread:ThreadWorker.enqueue_req": "c9f428953d24acef",
    "gunicorn.workers.gthread:ThreadWorker.finish_request": "d74497a7adab54b8",
    "gunicorn.workers.gthread:ThreadWorker.get_thread_pool": "003f3549a71b6d34",
    "gunicorn.workers.gthread:ThreadWorker.handle": "ca85c9be3df75da4",
    "gunicorn.workers.gthread:ThreadWorker.handle_request": "6d0de5b919102efc",
    "gunicorn.workers.gthread:ThreadWorker.is_parent_alive": "3517612f7763cc47",
    "gunicorn.workers.gthread:ThreadWorker.murder_keepalived": "4459960c4ccc36d4",
    "gunicorn.workers.gthread:ThreadWorker.run": "4e104c86c6b3a6d5",
    "gunicorn.workers.gthread:ThreadWorker.set_accept_enabled": "140150ebfd3cae34",
    "requests.adapters:HTTPAdapter.init_poolmanager": "dcc10b3b4da2db73",
    "requests.adapters:HTTPAdapter.send": "a8b4a1d8c114e29d",
    "urllib3.connection:HTTPConnection._new_conn": "83e6a5dd7db98a0a",
    "urllib3.poolmanager:PoolManager._new_pool": "6b5c00b2084b0ba4",
}


def digest_of(name: str) -> str:
    module, _, path = name.partition(":")
    found = reduce(getattr, path.split("."), importlib.import_module(module))
    return hashlib.sha256(inspect.getsource(found).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_an_overridden_method_has_not_changed_since_it_was_reviewed(name: str) -> None:
    assert digest_of(name) == OVERRIDDEN[name], f"{name} has changed"
