# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Addresses and free ports, IPv4 and IPv6."""

import ipaddress
import socket

from verl.errors import TransportError


def is_ipv4(ip_str: str) -> bool:
    """Whether the text is an IPv4 address."""
    try:
        ipaddress.IPv4Address(ip_str)
    except ipaddress.AddressValueError:
        return False
    return True


def is_ipv6(ip_str: str) -> bool:
    """Whether the text is an IPv6 address (without brackets)."""
    try:
        ipaddress.IPv6Address(ip_str)
    except ipaddress.AddressValueError:
        return False
    return True


def is_valid_ipv6_address(address: str) -> bool:
    """Another name of `is_ipv6`."""
    return is_ipv6(address)


def get_free_port(
    address: str, with_alive_sock: bool = False, ports: tuple[int, int] | None = None
) -> tuple[int, socket.socket | None]:
    """A port nobody uses on `address`; with `ports`, one of first … last.

    With `with_alive_sock` the bound socket comes along and keeps the port: as long as it lives the kernel gives the
    port to nobody who asks for any, while a server that names it (and sets SO_REUSEADDR, as torch's store does)
    can still listen on it. Without, somebody else may take it in the meantime.
    """
    candidates = [0] if ports is None else range(ports[0], ports[1] + 1)
    refusal: OSError | str = "a range without a port"
    for candidate in candidates:
        try:
            sock = _bound(address.strip("[]"), candidate)
        except OSError as error:
            refusal = error
            continue
        port = sock.getsockname()[1]
        if with_alive_sock:
            return port, sock
        sock.close()
        return port, None
    raise TransportError("no port can be bound", where=f"{address} {ports or ''}".strip(), got=str(refusal))


def _bound(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if is_ipv6(address) else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A port from a range may be held by a neighbour that has bound but not listened yet: two holders that
        # both allow reuse would not see each other, so the range is probed without.
        if port == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        sock.close()
        raise
    return sock
