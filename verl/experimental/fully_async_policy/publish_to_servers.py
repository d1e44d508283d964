# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The weight publisher of the fully asynchronous trainer: a new policy version every few local steps."""

from collections.abc import Callable
from typing import Any

from verl.checkpoint_engine.manager import CheckpointEngineManager
from verl.trainer.ppo.steps import Metrics
from verl.utils.profiler import marked_timer
from verl.utils.trace import span
from verl.waits import bounded

MESSAGE_DEADLINE_S = 120.0


class PublishToServers:
    """Counts local steps, pushes the weights when it is time, and tells the ledger.

    `on_version` is called with each new version (the batch source measures ages against it).
    """

    def __init__(
        self,
        manager: CheckpointEngineManager,
        rollouter: Any,
        *,
        trigger: int,
        version: int,
        on_version: Callable[[int], None],
    ) -> None:
        self.manager = manager
        self.rollouter = rollouter
        self.trigger = trigger
        self.version = version
        self.on_version = on_version
        self.local_step = 1
        on_version(version)

    async def publish(self, version: int) -> Metrics:
        """Push the present weights as `version`; the ledger admits new groups only when they are served."""
        with span("update_weights", version=version):
            stats = await self.manager.update_weights(global_steps=version)
        timing = await bounded(
            self.rollouter.reset_staleness.remote(version),
            what=f"an answer to publish({version})",
            whom="the rollouter",
            deadline_s=MESSAGE_DEADLINE_S,
        )
        self.version = version
        self.on_version(version)
        return timing | {f"weight_sync/{name}": float(value) for name, value in (stats or {}).items()}

    async def maybe_publish(self, step: int, timing_raw: dict[str, float]) -> tuple[bool, Metrics]:
        """After the last local step of a version, publish the next one."""
        if self.local_step < self.trigger:
            self.local_step += 1
            return False, {}
        self.local_step = 1
        # verl's timer name carries its prefix, so that the metric is timing_s/timing_s/param_sync.
        with marked_timer("timing_s/param_sync", timing_raw):
            return True, await self.publish(self.version + 1)

    async def finish(self) -> tuple[bool, Metrics]:
        """At the end of the run: publish what the last local steps, fewer than a version takes, have learned."""
        if self.local_step == 1:
            return False, {}
        self.local_step = 1
        return True, await self.publish(self.version + 1)
