# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Addresses and ports."""

import socket

import pytest
import torch.distributed as dist

from verl.errors import TransportError
from verl.utils.net_utils import get_free_port, is_ipv4, is_ipv6, is_valid_ipv6_address


def test_addresses_are_told_apart() -> None:
    assert is_ipv4("10.0.0.1")
    assert not is_ipv4("10.0.0")
    assert not is_ipv4("::1")
    assert is_ipv6("::1")
    assert is_valid_ipv6_address("fe80::1")
    assert not is_ipv6("[::1]")
    assert not is_ipv6("localhost")


def test_a_port_that_is_held_goes_to_nobody_else_but_to_a_server_that_names_it() -> None:
    port, holder = get_free_port("127.0.0.1", with_alive_sock=True)
    others = [get_free_port("127.0.0.1")[0] for _ in range(200)]
    assert port not in others
    store = dist.TCPStore("127.0.0.1", port, 1, is_master=True)
    store.set("key", "value")
    assert store.get("key") == b"value"
    holder.close()


def test_a_port_without_holder_is_free_at_the_moment() -> None:
    port, holder = get_free_port("127.0.0.1")
    assert holder is None
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", port))


def test_ports_come_from_the_range_and_skip_those_in_use() -> None:
    first, holder = get_free_port("127.0.0.1", with_alive_sock=True, ports=(43000, 43050))
    second, other = get_free_port("127.0.0.1", with_alive_sock=True, ports=(43000, 43050))
    assert 43000 <= first < second <= 43050
    with pytest.raises(TransportError, match=r"no port can be bound"):
        get_free_port("127.0.0.1", ports=(first, first))
    store = dist.TCPStore("127.0.0.1", second, 1, is_master=True)
    store.set("key", "value")
    holder.close()
    other.close()


def test_an_address_of_another_host_is_refused() -> None:
    with pytest.raises(TransportError, match=r"203\.0\.113\.7"):
        get_free_port("203.0.113.7")


def test_ipv6_is_bound_where_the_machine_has_it() -> None:
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert get_free_port("[::1]")[0] > 0
