# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which weights a server serves, and the transaction that changes them: all old, or all new, or nothing."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from verl.errors import PeerLost, TransportError, WaitTimeout
from verl.workers.rollout.schemas import StaleWeights

# A short call into every worker.
CONTROL_DEADLINE_S = 120.0
# Applying repacks every layer on CPU; a large model takes minutes.
APPLY_DEADLINE_S = 600.0


class CollectiveRPC(Protocol):
    """One call of a method of every worker."""

    def __call__(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Awaitable[list[Any]]: ...


class ServedWeights:
    """The state of one server's weights.

    `version` is what serves. Between the first weight touched and the last one in place, and after a failure in
    between, the weights are *stale*: `refuse_if_stale` raises until an update has succeeded.
    """

    def __init__(self, name: str, collective_rpc: CollectiveRPC, activate: Callable[[int], Awaitable[None]]) -> None:
        self.version = 0
        self.adapter = False
        """Whether an adapter has been loaded, which requests must then ask for."""
        self.stale: str | None = None
        self.updating: int | None = None
        self._update_is_adapter = False
        self._name = name
        self._rpc = collective_rpc
        self._activate = activate

    def refuse_if_stale(self, action: str) -> None:
        """Raise StaleWeights where the weights are not those of one version."""
        if self.stale:
            raise StaleWeights(
                f"{self._name} refuses to {action}: {self.stale}", remedy="a full weight update makes it serve again"
            )

    async def begin(self, version: int, use_shm: bool, deadline_s: float, **kwargs: Any) -> list[dict[str, Any]]:
        """Let every worker listen; returns at once with what each said (socket, whether it stages)."""
        options = {"version": version, "use_shm": use_shm, "deadline_s": deadline_s, **kwargs}
        answers = await self._rpc("verl_begin_weights", timeout=CONTROL_DEADLINE_S, kwargs=options)
        self.updating = version
        self._update_is_adapter = bool(kwargs.get("peft_config")) and bool(kwargs.get("base_sync_done"))
        return list(answers)

    async def apply(self, version: int) -> dict[str, Any]:
        """Put the received weights in.

        Raises TransportError when a worker fails; then the weights are stale, unless no worker had touched any.
        """
        before, self.stale = self.stale, f"the update to version {version} has not ended"
        try:
            workers = await self._rpc("verl_apply_weights", timeout=APPLY_DEADLINE_S, args=(version,))
            versions = {worker["version"] for worker in workers}
            if versions != {version}:
                raise TransportError(
                    "workers applied other weights", where=self._name, got=sorted(versions), expected=version
                )
            await self._activate(version)
        except (PeerLost, WaitTimeout):
            raise
        except Exception as error:
            await self._after_failure(version, before, error)
            raise TransportError(
                f"applying weights of version {version} failed on {self._name}: {error}",
                remedy="push the same version again",
            ) from error
        self.version = version
        self.adapter = self.adapter or self._update_is_adapter
        self.stale, self.updating = None, None
        return {**workers[0], "apply_s": max(worker["apply_s"] for worker in workers), "workers": workers}

    async def _after_failure(self, version: int, before: str | None, error: Exception) -> None:
        self.stale = f"the update to version {version} failed half way ({error})"
        workers = await self._rpc("verl_weight_state", timeout=CONTROL_DEADLINE_S)
        whole = not any(worker["stale"] for worker in workers)
        if whole and {worker["version"] for worker in workers} <= {None, self.version}:
            self.stale = before

    async def abort(self, version: int, reason: str) -> None:
        """Drop what was received and not applied; the old weights go on serving."""
        await self._rpc("verl_abort_weights", timeout=CONTROL_DEADLINE_S, args=(version, reason))
        self.updating = None

    async def state(self) -> dict[str, Any]:
        """What serves and what is under way, as the server and each worker see it."""
        workers = await self._rpc("verl_weight_state", timeout=CONTROL_DEADLINE_S)
        return {
            "version": self.version,
            "stale": self.stale is not None,
            "reason": self.stale,
            "updating": self.updating,
            "workers": list(workers),
        }
