"""Which registries images may be pulled from: a list such as `public,registry.example.org:5000`.

`public` means every registry whose addresses are public, and names without a registry, for which the engine knows where
to look. An address in a private network is contacted only if the list names its registry, with its port.
"""

from __future__ import annotations

import ipaddress

from deborgen_shared.jobfile.images import check_image, registry_of

PUBLIC = "public"
#: Podman gives this registry to images that were made on the machine itself.
LOCALHOST = "localhost"
#: An address in one of these networks stands for an IPv4 address: its last four bytes.
_TRANSLATED = [ipaddress.ip_network(each) for each in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")]


def parse_registries(text: str) -> frozenset[str]:
    """The names in a list of registries. Raises ValueError if one cannot be the name of a registry."""
    names = frozenset(name.strip().lower() for name in text.split(",") if name.strip())
    for name in names - {PUBLIC, LOCALHOST}:
        if registry_of(f"{name}/x") != name or check_image(f"{name}/x") or "/" in name:
            raise ValueError(f"{name[:80]!r} is not a registry: write it like public,registry.example.org:5000")
    return names


def is_allowed(registry: str, allowed: frozenset[str]) -> bool:
    """Whether the list allows a registry, as far as its name tells. An empty name leaves the choice to the engine."""
    return registry in allowed or (PUBLIC in allowed and not _is_private_name(registry.partition(":")[0]))


def _is_private_name(host: str) -> bool:
    if host == LOCALHOST or host.endswith(f".{LOCALHOST}"):
        return True
    try:
        return not is_public(host)
    except ValueError:  # it is a name, and only a lookup can tell
        return False


def is_public(address: str) -> bool:
    """Whether an IP address is public. One that stands for another address is judged by that other address.

    Raises ValueError if the text is not an IP address.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if any(found in network for network in _TRANSLATED):
            inner = ipaddress.IPv4Address(found.packed[-4:])
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast
