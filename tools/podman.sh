#!/usr/bin/env bash
# Install Podman for the tests if it is missing (on Debian, as root), and make the small image that the tests run.
# A second run changes nothing.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
export CONTAINERS_CONF="${CONTAINERS_CONF:-$here/containers.conf}"
image="${1:-localhost/deborgen-test:1}"

if ! command -v podman >/dev/null || ! command -v busybox >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "Podman is not installed, and can only be installed here by root with apt-get" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    apt-get install -q -y --no-install-recommends podman crun runc netavark aardvark-dns iptables uidmap slirp4netns \
        fuse-overlayfs catatonit busybox-static
fi

podman image exists "$image" && exit 0

root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,tmp,etc,job,proc,sys,dev,run}
cp "$(command -v busybox)" "$root/bin/busybox"
for name in $(busybox --list); do
    [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"
done
echo 'root:x:0:0:root:/:/bin/sh' > "$root/etc/passwd"
tar -C "$root" -c . | podman import -c 'ENV PATH=/bin' - "$image" >/dev/null
