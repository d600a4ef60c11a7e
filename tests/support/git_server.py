"""Git servers on 127.0.0.1: git's own `http-backend` behind HTTP, and a real sshd. And repositories to serve."""

from __future__ import annotations

import base64
import contextlib
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support.waiting import wait_until

BACKEND = "/usr/lib/git-core/git-http-backend"
SSHD = "/usr/sbin/sshd"
_ENV = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}  # fmt: skip


def run_git(*arguments: str, stdin: bytes = b"") -> str:
    done = subprocess.run(["git", *arguments], input=stdin, capture_output=True, env=_ENV, check=False)
    assert done.returncode == 0, f"git {shlex.join(arguments)}: {done.stderr.decode()}"
    return done.stdout.decode().strip()


class Repository:
    """A bare repository. Trees are made entry by entry, so they may hold what git itself would refuse to add."""

    def __init__(self, path: Path) -> None:
        self.path = path
        run_git("init", "-q", "--bare", "-b", "main", str(path))
        run_git("-C", str(path), "config", "uploadpack.allowAnySHA1InWant", "true")

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        return run_git(f"--git-dir={self.path}", *arguments, stdin=stdin)

    def blob(self, content: bytes) -> str:
        return self.git("hash-object", "-w", "--stdin", stdin=content)

    def commit(
        self, files: Mapping[str, str | bytes], branch: str = "main", *, links: Mapping[str, str] | None = None,
        submodules: Mapping[str, str] | None = None, scripts: tuple[str, ...] = (),
    ) -> str:  # fmt: skip
        """A commit of exactly these files, links and submodules (path and commit), without parents; a force push."""
        entries: dict[str, tuple[str, str]] = {}
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entries[path] = ("100755" if path in scripts else "100644", self.blob(data))
        entries |= {path: ("120000", self.blob(leads.encode())) for path, leads in (links or {}).items()}
        entries |= {path: ("160000", commit) for path, commit in (submodules or {}).items()}
        commit = self.git("commit-tree", "-m", "a commit", self._tree(entries))
        self.git("update-ref", f"refs/heads/{branch}", commit)
        return commit

    def _tree(self, entries: Mapping[str, tuple[str, str]]) -> str:
        """A tree, made with `mktree`, which takes every name."""
        folders: dict[str, dict[str, tuple[str, str]]] = {}
        lines = []
        for path, (mode, name) in entries.items():
            first, slash, rest = path.partition("/")
            if slash:
                folders.setdefault(first, {})[rest] = (mode, name)
            else:
                lines.append((mode, name, path))
        lines += [("040000", self._tree(inner), first) for first, inner in folders.items()]
        kinds = {"040000": "tree", "160000": "commit"}
        text = "".join(f"{mode} {kinds.get(mode, 'blob')} {name}\t{path}\0" for mode, name, path in lines)
        return self.git("mktree", "-z", "--missing", stdin=text.encode())


@dataclass
class GitServer:
    """What the server does wrong, changed while it runs, and what it was asked."""

    url: str
    folder: Path
    #: `user:password` that it asks for; empty for a public server.
    password: str = ""
    #: Answer no request until this is set.
    answers: threading.Event = field(default_factory=threading.Event)
    #: End the answer to a fetch after this many bytes.
    cut_after: int | None = None
    #: Send every request elsewhere.
    redirect: str = ""
    #: Send bytes without end in the answer to a fetch.
    endless: bool = False
    #: The path of each request, in order, and the credentials that came with it.
    requests: list[tuple[str, str]] = field(default_factory=list)

    def repository(self, name: str) -> Repository:
        return Repository(self.folder / name)

    def url_of(self, name: str) -> str:
        return f"{self.url}/{name}"

    @property
    def fetches(self) -> int:
        """How many packs were asked for: each fetch asks for the refs first, in a request to the same path."""
        return sum(path == "fetch" for path, _ in self.requests)


@contextlib.contextmanager
def http_server(folder: Path, password: str = "") -> Iterator[GitServer]:
    """A server for all repositories in the folder."""
    folder.mkdir(exist_ok=True)
    state = GitServer("", folder, password)
    state.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline().strip() or b"0", 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
            self._serve(body)

        def _serve(self, body: bytes) -> None:
            given = self.headers.get("Authorization") or ""
            wants = b"want " in body or b"command=fetch" in body
            state.requests.append(("fetch" if wants else self.path, given))
            if not state.answers.wait(120):
                return
            if state.redirect:
                self._head(302, [("Location", state.redirect + self.path)], b"")
                return
            expected = f"Basic {base64.b64encode(state.password.encode()).decode()}"
            if state.password and given != expected:
                self._head(401, [("WWW-Authenticate", 'Basic realm="git"')], b"")
                return
            if wants and state.endless:
                self._send_for_ever()
                return
            head, content = self._backend(body)
            if wants and state.cut_after is not None:
                self._head(200, head, content[: state.cut_after], len(content))
                self.connection.close()
                return
            status = next((int(value.split()[0]) for name, value in head if name == "Status"), 200)
            self._head(status, [pair for pair in head if pair[0] != "Status"], content)

        def _head(self, status: int, head: list[tuple[str, str]], content: bytes, size: int | None = None) -> None:
            self.send_response(status)
            for name, value in head:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content) if size is None else size))
            self.end_headers()
            self.wfile.write(content)

        def _send_for_ever(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-result")
            self.end_headers()
            # A valid start of a pack with one object that is as large as a pack can say, and never ends.
            self.wfile.write(b"000dpackfile\n")
            part = b"PACK\0\0\0\2\0\0\0\1" + bytes([0xBF, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]) + b"\x78\x01"
            block = b"\x00\x80\x00\x7f\xff" + bytes(128)  # a stored block of zeros: 128 bytes, and 128 come out
            with contextlib.suppress(OSError):
                while True:
                    part += block * 400
                    part = part[:60_000]
                    self.wfile.write(f"{len(part) + 5:04x}".encode() + b"\1" + part)
                    part = b""

        def _backend(self, body: bytes) -> tuple[list[tuple[str, str]], bytes]:
            path, _, query = self.path.partition("?")
            env = {
                **_ENV, "GIT_PROJECT_ROOT": str(folder), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_ADDR": "127.0.0.1",
                "CONTENT_TYPE": self.headers.get("Content-Type") or "", "CONTENT_LENGTH": str(len(body)),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
            }  # fmt: skip
            done = subprocess.run([BACKEND], input=body, capture_output=True, env=env, check=False)
            text, _, content = done.stdout.partition(b"\r\n\r\n")
            pairs = [line.partition(": ")[::2] for line in text.decode().splitlines()]
            return [(name, value) for name, value in pairs], content

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        state.answers.set()
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class SshServer:
    """A running sshd: where it is, the private key that opens it, and a file with its own key."""

    url: str
    folder: Path
    key: str
    known_hosts: Path

    def url_of(self, name: str) -> str:
        return f"{self.url}{self.folder / name}"


@contextlib.contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """An sshd of this test's own, which lets the user of this process in with one key."""
    folder.mkdir(exist_ok=True, mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile {folder}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nLogLevel ERROR\n"
        "KbdInteractiveAuthentication no\nPermitRootLogin yes\nAcceptEnv GIT_PROTOCOL\n"
    )
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.DEVNULL)

    def is_up() -> bool:
        assert process.poll() is None, "sshd has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return True
        return False

    try:
        wait_until(is_up, what="sshd to listen")
        host_key = " ".join((folder / "host.pub").read_text().split()[:2])
        known = folder / "known"
        known.write_text(f"[127.0.0.1]:{port} {host_key}\n")
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        yield SshServer(f"ssh://{user}@127.0.0.1:{port}", folder, (folder / "user").read_text(), known)
    finally:
        process.terminate()
        process.wait()
