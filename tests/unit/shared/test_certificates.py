"""Which certificates a client trusts: those in the given file, otherwise the system's."""

from __future__ import annotations

import http.server
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deborgen_shared import contract
from deborgen_shared.client.transport import NoAnswer, Transport, Trouble


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"status": "ok", "version": "1"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_certificates_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_ca(tmp_path: Path) -> Path:
    """A self-signed certificate, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    file = tmp_path / "own.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", file, "-out", tmp_path / "cert"], check=True, capture_output=True)
    with file.open("a") as both:
        both.write((tmp_path / "cert").read_text())
    return file


@pytest.fixture
def url(own_ca: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_ca)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"https://localhost:{server.server_port}"
        server.shutdown()


def test_an_unknown_certificate_is_not_trusted(url: str) -> None:
    with pytest.raises(NoAnswer) as refused:
        Transport(url, lambda: "t").call(contract.HEALTH)
    assert refused.value.trouble is Trouble.CERTIFICATE


def test_a_certificate_in_the_given_file_is_trusted(url: str, own_ca: Path) -> None:
    assert Transport(url, lambda: "t", ca_file=str(own_ca)).call(contract.HEALTH).status == "ok"


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_the_certificates_of_the_system_are_trusted(
    url: str, own_ca: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(own_ca.with_name("cert")))
    assert Transport(url, lambda: "t").call(contract.HEALTH).status == "ok"
