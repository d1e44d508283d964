# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which server takes a request: the one that knows its prefix, else the one with the least to do."""

from collections import OrderedDict
from collections.abc import Iterable

import xxhash

from verl.errors import PeerLost

_MAX_REMEMBERED_REQUESTS = 10_000


class GlobalRequestLoadBalancer:
    """Sticky by request id, otherwise least in flight; ties go by a hash that is the same in every process.

    Used as a Ray actor where several processes send requests, as an object where one does. Invariant: the in-flight
    count of a server is the sum of the costs acquired there and not yet released; it is never negative, and a
    release for a server that has gone, or has come back since, changes nothing.

    `deterministic=True` ignores load, so that the same request ids meet the same servers in every launch.
    """

    def __init__(
        self,
        server_actor_ids: Iterable[str],
        max_cache_size: int = _MAX_REMEMBERED_REQUESTS,
        *,
        deterministic: bool = False,
    ) -> None:
        self._in_flight: dict[str, dict[str, int]] = {server: {} for server in server_actor_ids}
        self._home: OrderedDict[str, str] = OrderedDict()
        self._max_remembered = max_cache_size
        self._deterministic = deterministic

    def acquire_server(self, request_id: str, cost: int = 1) -> str:
        """Choose a server and count `cost` requests (a group counts its size) as in flight there.

        Raises PeerLost when no server is left.
        """
        server = self._home.get(request_id)
        if server not in self._in_flight:
            server = self._choose(request_id)
        self._remember(request_id, server)
        taken = self._in_flight[server]
        taken[request_id] = taken.get(request_id, 0) + cost
        return server

    def release_server(self, server_id: str, request_id: str | None = None, cost: int = 1) -> None:
        """Take `cost` back; without a request id any request of the server counts as released."""
        taken = self._in_flight.get(server_id, {})
        if request_id is None:
            request_id = next(iter(taken), None)
        if request_id not in taken:
            return
        taken[request_id] -= cost
        if taken[request_id] <= 0:
            del taken[request_id]

    def add_server(self, server_id: str) -> None:
        """A new or returned server starts with nothing in flight."""
        self._in_flight.setdefault(server_id, {})

    def remove_server(self, server_id: str) -> None:
        """Forget a lost server: its requests go elsewhere when they are sent again."""
        self._in_flight.pop(server_id, None)

    def in_flight(self) -> dict[str, int]:
        """Requests in flight on each server."""
        return {server: sum(taken.values()) for server, taken in sorted(self._in_flight.items())}

    def _choose(self, request_id: str) -> str:
        if not self._in_flight:
            raise PeerLost("no rollout server is left", remedy="see the errors of the servers above")

        def rank(server: str) -> tuple[int, int]:
            load = 0 if self._deterministic else sum(self._in_flight[server].values())
            return load, xxhash.xxh3_64_intdigest(f"{server}\0{request_id}".encode())

        return min(sorted(self._in_flight), key=rank)

    def _remember(self, request_id: str, server: str) -> None:
        self._home[request_id] = server
        self._home.move_to_end(request_id)
        while len(self._home) > self._max_remembered:
            self._home.popitem(last=False)
