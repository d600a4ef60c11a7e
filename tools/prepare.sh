#!/usr/bin/env bash
# Install what the tests need besides Python: PostgreSQL, RabbitMQ, a registry of images, git, an SSH server, Chromium,
# Podman and a few small tools from Debian's packages, and a small image. Without root or apt-get it says what is missing; the tests that need it then say that they were not run.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"

missing=()
ls /usr/lib/postgresql/*/bin/postgres > /dev/null 2>&1 || missing+=(postgresql)
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing+=(rabbitmq-server)
for program in strace mmdebstrap openssl git chromium docker-registry; do
    command -v "$program" > /dev/null || missing+=("$program")
done
for pair in ss:iproute2 ssh:openssh-client htpasswd:apache2-utils; do
    command -v "${pair%%:*}" > /dev/null || missing+=("${pair##*:}")
done
[ -x /usr/sbin/sshd ] || missing+=(openssh-server)

if [ "${#missing[@]}" -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        # Do not create Debian's default cluster: the tests make their own.
        mkdir -p /etc/postgresql-common
        [ -e /etc/postgresql-common/createcluster.conf ] ||
            echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf
        # Nor start any service: the tests start their own, on free ports.
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            trap 'rm -f "$policy"' EXIT
            printf '#!/bin/sh\nexit 101\n' > "$policy"
            chmod +x "$policy"
        fi
        apt-get update -q
        apt-get install -q -y --no-install-recommends "${missing[@]}"
    else
        echo "not installed: ${missing[*]}. The tests that need them will not be run" >&2
    fi
fi

"$here/podman.sh" || echo "Podman cannot be used: the tests with containers will not be run" >&2
