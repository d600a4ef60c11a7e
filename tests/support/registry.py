"""A registry of images on 127.0.0.1 that offers one image, and a configuration with which Podman trusts it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support.podman import Podman


@contextlib.contextmanager
def registry(podman: Podman, image: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Offer an image of this machine under every name. Gives the registry's address and the configuration's path."""
    layout = folder / "layout"
    podman("save", "--quiet", "--format", "oci-dir", "--output", str(layout), image)
    first = json.loads((layout / "index.json").read_text())["manifests"][0]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, _, name = self.path.removeprefix("/v2/").rpartition("/")
            digest = first["digest"] if kind.endswith("manifests") and ":" not in name else name
            blob = layout / "blobs" / "sha256" / digest.rpartition(":")[2]
            body = blob.read_bytes() if name and blob.is_file() else b"{}"
            self.send_response(200 if blob.is_file() or self.path == "/v2/" else 404)
            self.send_header("Content-Type", first["mediaType"] if "manifests" in kind else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_address[1]}"
    conf = folder / "registries.conf"
    conf.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    try:
        yield address, conf
    finally:
        server.shutdown()
        server.server_close()
