#!/usr/bin/env bash
# What the tests need on the machine beside Python: PostgreSQL and Podman, from Debian's packages, and a small image.
# Without root or apt-get it says what is missing; the tests that need it then say that they were not run.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; }

if ! ls /usr/lib/postgresql/*/bin/postgres > /dev/null 2>&1; then
    if can_install; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q
        # The packaged cluster is not wanted: the tests make private ones.
        mkdir -p /etc/postgresql-common
        [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf
        apt-get install -q -y --no-install-recommends postgresql
    else
        echo "PostgreSQL is not installed: the tests on it will not be run" >&2
    fi
fi

for program in strace mmdebstrap; do
    if ! command -v "$program" > /dev/null; then
        if can_install; then
            DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$program"
        else
            echo "$program is not installed: a few tests of faults will not be run" >&2
        fi
    fi
done

"$here/podman.sh" || echo "Podman cannot be used: the tests with containers will not be run" >&2
