#!/usr/bin/env bash
# Prove the playbooks on real hosts: what `make fleet` and `make test` run, after `make install`. Extra words go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

"$bin/python" -m pip install -q -c constraints.txt --group fleet

if [ "$(id -u)" -ne 0 ]; then
    echo "The hosts of the fleet need root on this machine: their tests are not run, only the playbooks are checked." >&2
else
    missing=()
    for pair in podman:podman mmdebstrap:mmdebstrap ssh:openssh-client busybox:busybox-static runc:runc \
                iptables:iptables netavark:netavark aardvark-dns:aardvark-dns conmon:conmon; do
        command -v "${pair%%:*}" >/dev/null || [ -x "/usr/lib/podman/${pair%%:*}" ] || missing+=("${pair##*:}")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" debian-archive-keyring >/dev/null
    fi
fi

exec "$bin/pytest" -rs tests/fleet "$@"
