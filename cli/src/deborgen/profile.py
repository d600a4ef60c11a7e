"""Finds the coordinator and the token to use.

The address comes from `--url`, `DEBORGEN_URL`, the profile (`deborgen login`), or a running `deborgen up`, in this
order. A token belongs to one address: it is stored in its own file, readable only by its owner, and is sent nowhere
else.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from deborgen import runtime
from deborgen.directories import config_dir, write_private
from deborgen.errors import DeborgenError, NotAllowed, Unreachable, WrongUsage


@dataclass(frozen=True)
class Target:
    """A coordinator: its address, the token for it, and where each was found."""

    url: str
    token: str
    url_from: str
    token_from: str


def normalize(text: str) -> str:
    """The canonical form of an address, or of several with commas, which are coordinators of one pool."""
    return ",".join(_normalized(url) for url in text.split(","))


def _normalized(url: str) -> str:
    """Scheme and host in lower case, without a default port or a final slash."""
    not_an_address = WrongUsage(
        f"{url!r} is not the address of a coordinator", "write http://HOST:PORT or https://HOST"
    )
    text = url.strip()
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
    except ValueError:
        raise not_an_address from None
    try:
        port = parts.port
    except ValueError:
        raise WrongUsage(f"{url!r} has no valid port", "write http://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise not_an_address
    if parts.username or parts.password:
        raise WrongUsage("the address must not contain a password", "give the token to deborgen login instead")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = {"http": 80, "https": 443}[parts.scheme]
    netloc = host if port in (None, default) else f"{host}:{port}"
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))


def profile_file() -> Path:
    return config_dir() / "profile.json"


def token_file(url: str) -> Path:
    """The file that holds the token for this address, or for these, and for no other."""
    parts = urlsplit(url.partition(",")[0])
    readable = "".join(c if c.isalnum() or c in ".-" else "_" for c in parts.netloc)
    return config_dir() / "tokens" / f"{readable}-{sha256(url.encode()).hexdigest()[:12]}"


def stored_url() -> str:
    """The address that `deborgen login` stored, or an empty string."""
    try:
        stored = json.loads(profile_file().read_text("utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as why:
        raise DeborgenError(f"{profile_file()} cannot be read: {why}", "deborgen login URL writes a new one") from None
    url = stored.get("url", "") if isinstance(stored, dict) else ""
    return url if isinstance(url, str) else ""


def store(url: str, token: str) -> Path:
    """Store the token for this address, and make it the default address."""
    path = token_file(url)
    write_private(path, token + "\n")
    write_private(profile_file(), json.dumps({"url": url}) + "\n")
    return path


def read_token(path: Path) -> str:
    """Read a token from a file. A file that others can read is refused."""
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8").strip()
    except OSError as why:
        raise NotAllowed(f"the token file {path} cannot be read: {why.strerror}") from None
    except UnicodeDecodeError:
        raise NotAllowed(f"the token file {path} is not text") from None
    if mode & 0o077:
        raise NotAllowed(f"the token file {path} can be read by others", f"chmod 600 {path}")
    return text


def find(url: str | None = None, token: str | None = None) -> Target:
    """Find the coordinator to use. If there is none, the error says what to do."""
    up = runtime.find()
    if url:
        address, url_from = normalize(url), "--url"
    elif given := os.environ.get("DEBORGEN_URL"):
        address, url_from = normalize(given), "DEBORGEN_URL"
    elif stored := stored_url():
        address, url_from = normalize(stored), "profile"
    elif up:
        address, url_from = up.url, "deborgen up"
    else:
        raise Unreachable(
            "no coordinator is known here",
            "start one on this machine: deborgen up    or log in to one: deborgen login URL",
        )
    secret, token_from = (token, "argument") if token else _token_for(address, url_from, up)
    return Target(address, secret, url_from, token_from)


def _token_for(url: str, url_from: str, up: runtime.Runtime | None) -> tuple[str, str]:
    # A token from the environment belongs to DEBORGEN_URL if that is set, otherwise to an address that was given or
    # stored. It is never sent to a `deborgen up` that merely happens to run.
    given_url = os.environ.get("DEBORGEN_URL")
    if url_from != "deborgen up" and (not given_url or normalize(given_url) == url):
        if given := os.environ.get("DEBORGEN_TOKEN"):
            return given.strip(), "DEBORGEN_TOKEN"
        if given := os.environ.get("DEBORGEN_TOKEN_FILE"):
            return read_token(Path(given)), "DEBORGEN_TOKEN_FILE"
    if up and _without_localhost(up.url) == _without_localhost(url):
        return up.token, "deborgen up"
    for path in (token_file(url), token_file(_without_localhost(url))):
        if path.exists():
            return read_token(path), str(path)
    return "", "nowhere"


def _without_localhost(url: str) -> str:
    """The address with 127.0.0.1 instead of localhost, which is the same machine."""
    if "," in url:
        return url
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return url if parts.hostname != "localhost" else urlunsplit(parts._replace(netloc=f"127.0.0.1{port}"))
