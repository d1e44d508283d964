# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The loop's ends: whichever bound ends a run, the last steps are published, saved and measured, each once."""

import asyncio
from typing import Any

import pytest

from verl.trainer.ppo.loop import TrainLoop


class Parts:
    """Batch source, publisher, validation, checkpoints and recorder in one; `log` says what happened when."""

    def __init__(self, batches: int, trigger: int = 1, save_freq: int = 4, validation_fails: bool = False) -> None:
        self.left, self.trigger, self.save_freq, self.validation_fails = batches, trigger, save_freq, validation_fails
        self.version = self.pending = 0
        self.saved: list[tuple[int, int]] = []
        self.log: list[str] = []
        self.on_batch: Any = None

    async def next_batch(self, step: int, metrics: dict[str, Any]) -> Any:
        if self.on_batch:
            self.on_batch(step)
        self.left -= 1
        return object() if self.left >= 0 else None

    async def trained(self, step: int) -> None:
        self.pending += 1

    async def maybe_publish(self, step: int, timing_raw: dict[str, float]) -> tuple[bool, dict[str, Any]]:
        return (await self.finish()) if self.pending >= self.trigger else (False, {})

    async def finish(self) -> tuple[bool, dict[str, Any]]:
        if not self.pending:
            return False, {}
        self.pending, self.version = 0, self.version + 1
        self.log.append(f"publish {self.version}")
        return True, {"weight_sync/seconds": 1.0}

    async def maybe_run(self, version: int, *, final: bool = False) -> dict[str, Any]:
        if final and self.validation_fails:
            raise RuntimeError("validation failed")
        if final:
            self.log.append(f"validate {version}")
        return {}

    async def maybe_save(self, version: int, step: int, *, final: bool = False) -> float | None:
        if (final or version % self.save_freq == 0) and (version, step) not in self.saved:
            self.saved.append((version, step))
            self.log.append(f"save {version} after step {step}")
        return None

    def step(self, step: int, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float]) -> None:
        self.log.append(f"step {step}")

    def publish(self, version: int, metrics: dict[str, Any]) -> None:
        self.log.append(f"record {version}")


def run(parts: Parts, last_step: int | None = None, stop_at: int | None = None) -> str:
    async def scenario() -> str:
        loop = TrainLoop(parts, None, parts, parts, parts, parts, last_step=last_step, steps=())
        if stop_at is not None:
            parts.on_batch = lambda step: loop.stop.set() if step == stop_at else None
        return await loop.run()

    return asyncio.run(scenario())


@pytest.fixture(autouse=True)
def no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl.trainer.ppo.loop.run_steps", lambda batch, *rest: (batch, {}))


@pytest.mark.parametrize(
    ("save_freq", "expected"), [(4, [(4, 4), (6, 6)]), (3, [(3, 3), (6, 6)]), (7, [(6, 6)])], ids=str
)
@pytest.mark.parametrize(("last_step", "reason"), [(100, "data"), (6, "steps"), (None, "data")])
def test_the_last_step_is_saved_once_whichever_bound_ends_the_run(
    save_freq: int, expected: list[tuple[int, int]], last_step: int | None, reason: str
) -> None:
    parts = Parts(batches=6, save_freq=save_freq)
    assert run(parts, last_step) == reason
    assert parts.saved == expected
    assert parts.log.count("validate 6") == 1


def test_the_steps_behind_the_last_version_are_published_saved_and_measured() -> None:
    parts = Parts(batches=6, trigger=4, save_freq=1)
    run(parts)
    assert parts.log[-5:] == ["step 6", "publish 2", "save 2 after step 6", "validate 2", "record 2"]


def test_who_is_told_to_stop_saves_and_does_no_more() -> None:
    parts = Parts(batches=6, trigger=4, save_freq=1)
    assert run(parts, stop_at=2) == "stopped"
    assert parts.log == ["step 1", "step 2", "save 0 after step 2"]


def test_a_validation_that_fails_at_the_end_costs_no_step() -> None:
    parts = Parts(batches=2, validation_fails=True)
    with pytest.raises(RuntimeError, match="validation failed"):
        run(parts)
    assert parts.saved == [(2, 2)]
