"""Build, on the controller, one archive of everything that a machine installs, for its Python and its processor.

Prints JSON: the archive, the name of the release, and whether it was built just now. The four parts come from a
checkout, their dependencies from the controller's package index, pinned by constraints.txt. With --own the archive
contains the parts alone, for a machine that has an index. The name of a release includes a digest of its sources, so
the same sources give the same release.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PARTS = ("shared", "coordinator", "worker", "cli")
#: The files of a part that go into its wheel, and so into the digest.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "src")
#: Old enough for every supported distribution, new enough for every dependency.
GLIBCS = ("manylinux2014", "manylinux_2_17", "manylinux_2_24", "manylinux_2_26", "manylinux_2_27", "manylinux_2_28")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="a checkout of deborgen")
    parser.add_argument("--cache", type=Path, required=True, help="where archives are kept")
    parser.add_argument("--python", required=True, help="the target's Python, for example 3.13")
    parser.add_argument("--machine", required=True, help="the target's processor, for example x86_64")
    parser.add_argument("--own", action="store_true", help="include only our own parts, and pip")
    given = parser.parse_args()
    source = given.source.expanduser().resolve()
    if not (source / "shared" / "pyproject.toml").exists():
        sys.exit(f"{source} is not a checkout of deborgen; name one with --source")
    release = release_of(source)
    kind = "-own" if given.own else ""
    archive = given.cache.expanduser().resolve() / f"deborgen-{release}-py{given.python}-{given.machine}{kind}.tar.gz"
    built = not archive.exists()
    if built:
        archive.parent.mkdir(parents=True, exist_ok=True)
        build(source, archive, given)
    print(json.dumps({"archive": str(archive), "release": release, "built": built}))


def release_of(source):
    digest = hashlib.sha256()
    for path in sorted(everything(source)):
        digest.update(f"{path.relative_to(source)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    version = re.search(r'^version = "([^"]+)"', (source / "worker" / "pyproject.toml").read_text(), re.MULTILINE)
    return f"{version[1] if version else '0'}-{digest.hexdigest()[:12]}"


def everything(source):
    yield source / "constraints.txt"
    for part in PARTS:
        for name in SOURCES:
            root = source / part / name
            files = root.rglob("*") if root.is_dir() else [root]
            yield from (f for f in files if f.is_file() and "__pycache__" not in f.parts and ".egg-info" not in str(f))


def build(source, archive, given):
    with tempfile.TemporaryDirectory(prefix="deborgen-wheels-") as folder:
        wheels = Path(folder) / "wheels"
        own = archive.parent / f"deborgen-{release_of(source)}-parts"
        if not own.exists():
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda part: build_part(source, part, Path(folder)), PARTS))
            staged = Path(tempfile.mkdtemp(dir=archive.parent))
            for wheel in Path(folder).glob("*.whl"):
                shutil.copy2(wheel, staged)
            staged.rename(own)
        shutil.copytree(own, wheels)
        shutil.copy2(source / "constraints.txt", wheels)
        pip(
            "download", "--dest", wheels, "--find-links", wheels, "--only-binary=:all:",
            "--python-version", given.python,
            *(flag for glibc in GLIBCS for flag in ("--platform", f"{glibc}_{given.machine}")),
            "--constraint", source / "constraints.txt",
            "pip", *(() if given.own else ("deborgen-coordinator[postgres]", "deborgen-worker", "deborgen")),
        )  # fmt: skip
        partial = archive.with_suffix(".partial")
        with tarfile.open(partial, "w:gz", compresslevel=1) as tar:
            for wheel in sorted(wheels.iterdir()):
                tar.add(wheel, arcname=wheel.name)
        partial.replace(archive)


def build_part(source, part, folder):
    """The wheel of one part. From a copy, because building writes beside the sources."""
    copy = folder / part
    copy.mkdir()
    for name in SOURCES:
        if (source / part / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source / part / name, copy / name, ignore=ignored)
        elif (source / part / name).exists():
            shutil.copy2(source / part / name, copy / name)
    pip("wheel", "--no-deps", "--wheel-dir", folder, copy)


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"pip {arguments[0]} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
