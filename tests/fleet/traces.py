"""What a host has: files, units, users, packages. Two snapshots show what was added and removed in between."""

from __future__ import annotations

import re
from dataclasses import dataclass

from support.hosts import Host

#: Paths that change on any running machine: logs, caches of packages and of Python, backup copies of the tables of
#: users and packages, and where time and randomness are kept.
IGNORED = re.compile(
    r"^/var/log/|^/var/cache/|^/var/lib/(apt|dpkg)/|^/var/lib/systemd/(timers|random-seed|catalog|coredump|pstore)|"
    r"^/(etc|var/backups)/.*-$|/__pycache__(/|$)|^/etc/ld\.so\.cache$|^/var/tmp/systemd-private|^/tmp/|^/var/lib/dbus/|"
    r"^/root/\.(ansible|cache|ssh)|^/var/lib/systemd/(deb-systemd|linger$)|^/etc/\.pwd\.lock$"
)
#: Files whose text is compared. Of other files only the name is.
TABLES = "/etc/passwd /etc/group /etc/shadow /etc/gshadow /etc/subuid /etc/subgid"

SNAPSHOT = f"""
find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /run \\) -prune -o -printf 'file %p\\n'
find /var/lib -xdev -printf 'file %p\\n'
systemctl list-unit-files --no-legend --no-pager | grep -v '^session-' | awk '{{print "unit", $1, $2}}'
dpkg-query -W -f 'package ${{db:Status-Status}} ${{Package}}\\n' | grep ' installed '
for table in {TABLES}; do test -e $table && sed "s|^|line $table |" $table; done
ps -eo user:32= | sort -u | sed 's/^/runs as /'
"""


@dataclass(frozen=True)
class Traces:
    """One snapshot of a host, with one line per thing."""

    lines: frozenset[str]

    def since(self, before: Traces) -> list[str]:
        """What was added (+) and removed (-) since then, without what changes on any running machine."""
        changes = [("+", line) for line in self.lines - before.lines]
        changes += [("-", line) for line in before.lines - self.lines]
        return sorted(f"{sign} {line}" for sign, line in changes if not IGNORED.search(line.partition(" ")[2]))


def traces(host: Host) -> Traces:
    return Traces(frozenset(host.output(SNAPSHOT).splitlines()))
