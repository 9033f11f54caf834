"""Connections to public network addresses only, against server-side request forgery (SSRF).

The address is checked at the connection, so that no DNS answer can change in between.
"""

import contextlib
import ipaddress
import re
import socket
from urllib.parse import urlsplit

from stepline.errors import MediaError

# The IPv6 addresses of the internet (RFC 4291, section 2.4). All others are local, withdrawn
# (::/96, ::ffff:0:0:0/96, fec0::/10) or reserved.
GLOBAL_UNICAST_NETWORK = ipaddress.IPv6Network("2000::/3")
NAT64_NETWORK = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 within IPv6, RFC 6052
# Not in the registry of special addresses: Azure's metadata server, and the withdrawn relays of
# 6to4.
CLOSED_NETWORKS = (
    ipaddress.IPv4Network("168.63.129.16/32"),
    ipaddress.IPv4Network("192.88.99.0/24"),
)
ISATAP_PREFIXES = (0x00005EFE, 0x02005EFE)  # before the IPv4 address of a tunnel, RFC 5214


def is_public(address: str) -> bool:
    """Return whether an IP address, and any embedded IPv4 address, is public."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        return _is_public_ipv4(ip)
    if ip.ipv4_mapped is not None:
        return _is_public_ipv4(ip.ipv4_mapped)
    low_bits = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip in NAT64_NETWORK:
        return _is_public_ipv4(low_bits)
    if ip not in GLOBAL_UNICAST_NETWORK or not ip.is_global or ip.is_multicast:
        return False
    embedded = [ipv4 for ipv4 in (ip.sixtofour, *(ip.teredo or ())) if ipv4 is not None]
    if int(ip) >> 32 & 0xFFFFFFFF in ISATAP_PREFIXES:
        embedded.append(low_bits)
    return all(map(_is_public_ipv4, embedded))


def _is_public_ipv4(ip: ipaddress.IPv4Address) -> bool:
    if not ip.is_global or ip.is_multicast:
        return False
    return not any(ip in network for network in CLOSED_NETWORKS)


class NamedHost:
    """A host that the user named, such as a camera, which may have a private address.

    A host that was public at its first connection and becomes private is refused.

    Attributes:
        name: name of the host in lower case.
    """

    def __init__(self, name: str) -> None:
        self.name = name.lower()
        self._may_be_private: bool | None = None  # None before the first connection

    def allows(self, host: str, address: str) -> bool:
        """Return whether a connection may go to a private IP address of a host.

        It may only if the user named the host, and the first address asked about was private too.
        So a public host cannot switch to a private address (DNS rebinding).

        Args:
            host: name of the host to connect to.
            address: its IP address.
        """
        if host.lower() != self.name:
            return False
        if self._may_be_private is None:
            self._may_be_private = not is_public(address)
        return self._may_be_private


def connect_checked(
    address: tuple[str, int],
    timeout: float,
    *,
    private: bool = False,
    named: NamedHost | None = None,
) -> socket.socket:
    """Return a TCP connection to a host and port.

    Args:
        address: host and port.
        timeout: seconds.
        private: whether any private address is allowed.
        named: the only host that may have a private address. None: no host.

    Raises MediaError for a forbidden private address, OSError if the connection fails.
    """
    host = address[0]
    last_error = OSError(f"{host}: no address")
    for family, kind, protocol, _name, socket_address in socket.getaddrinfo(
        *address, 0, socket.SOCK_STREAM
    ):
        ip = str(socket_address[0])
        # Called for every address, since it remembers the first one.
        is_named = named is not None and named.allows(host, ip)
        if not (private or is_named or is_public(ip)):
            raise _private_address_error(ip)
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(timeout)
            connection.connect(socket_address)
        except OSError as error:
            connection.close()
            last_error = error
            continue
        return connection
    raise last_error


def _private_address_error(address: str) -> MediaError:
    return MediaError(
        f"{address} is a private address; where you trust it, --set links.private=true"
    )


def check_url(url: str, *, private: bool = True) -> None:
    """Raise MediaError for a URL without a valid host and port.

    private: False also refuses localhost and literal private IP addresses. No name is looked up.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host.encode("idna")
        if not host.strip(".") or parts.port == 0:
            raise ValueError("names no host")
    except ValueError as error:  # UnicodeError too
        raise MediaError(
            f"{display_url(url)}: no address ({error}); correct the address"
        ) from error
    if private:
        return
    is_private = host == "localhost"
    with contextlib.suppress(ValueError):  # a name
        is_private = is_private or not is_public(host)
    if is_private:
        raise _private_address_error(host)


def display_url(url: str) -> str:
    """Return a URL without user, password and query, for messages."""
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    try:
        parts = urlsplit(bare)
    except ValueError:  # a bracket that is not closed
        scheme, separator, address = bare.partition("://")
        return f"{scheme}{separator}{address.rpartition('@')[2]}"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
