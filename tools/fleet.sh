#!/usr/bin/env bash
# Test the playbooks on real hosts. `make fleet` runs this after `make prepare`. Arguments go to pytest.
# The stories have hosts of their own and run side by side, each test module in one process.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

"$bin/python" -m pip install -q -c constraints.txt --group fleet

missing=()
for pair in podman:podman mmdebstrap:mmdebstrap ssh:openssh-client ssh-keygen:openssh-client busybox:busybox-static \
            runc:runc iptables:iptables netavark:netavark aardvark-dns:aardvark-dns conmon:conmon; do
    command -v "${pair%%:*}" >/dev/null || [ -x "/usr/lib/podman/${pair%%:*}" ] || missing+=("${pair##*:}")
done
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)

if [ "$(id -u)" -ne 0 ]; then
    echo "The hosts of the fleet need root on this machine: their tests are not run, and only the playbooks are checked." >&2
elif [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "The hosts of the fleet need ${missing[*]}, and there is no apt-get: install them, or their tests are not run." >&2
    else
        export DEBIAN_FRONTEND=noninteractive
        if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }; then
            echo "The hosts of the fleet need ${missing[*]}, which apt-get could not install: their tests may not run." >&2
        fi
    fi
fi

# The hosts run containers, whose layers need a real disk: the files of these tests must not be in memory.
export PYTEST_DEBUG_TEMPROOT="${PYTEST_DEBUG_TEMPROOT:-/var/tmp}"
exec "$bin/pytest" -rs -n 3 --dist loadfile --no-loadscope-reorder tests/fleet "$@"
