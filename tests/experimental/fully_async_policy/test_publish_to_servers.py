# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A new version every few local steps, and one more at the end for the steps that are left."""

import asyncio
from types import SimpleNamespace
from typing import Any

from verl.experimental.fully_async_policy.publish_to_servers import PublishToServers


class Servers:
    """Checkpoint manager and the rollouter's handle in one: note what they are told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.reset_staleness = SimpleNamespace(remote=self._reset)

    async def update_weights(self, global_steps: int) -> dict[str, Any]:
        self.told.append(("weights", global_steps))
        return {"seconds": 0.5}

    async def _reset(self, version: int) -> dict[str, float]:
        self.told.append(("room", version))
        return {"fully_async/rollouter/idle_ratio": 0.0}


def test_a_version_is_published_after_its_last_local_step_and_the_rest_at_the_end() -> None:
    async def scenario() -> tuple[list[bool], bool, bool]:
        published = [(await publisher.maybe_publish(step, {}))[0] for step in range(1, 6)]
        at_end, metrics = await publisher.finish()
        assert metrics["weight_sync/seconds"] == 0.5
        return published, at_end, (await publisher.finish())[0]

    servers, versions = Servers(), []
    publisher = PublishToServers(servers, servers, trigger=2, version=3, on_version=versions.append)
    assert asyncio.run(scenario()) == ([False, True, False, True, False], True, False)
    assert servers.told == [(what, version) for version in (4, 5, 6) for what in ("weights", "room")]
    assert versions == [3, 4, 5, 6] and publisher.version == 6
