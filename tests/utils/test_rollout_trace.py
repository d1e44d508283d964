# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from verl.errors import ConfigError, UnsupportedError
from verl.utils.rollout_trace import RolloutTraceConfig, rollout_trace_attr, rollout_trace_op
from verl.utils.trace import read_trace, set_up_trace, stop_trace


@pytest.fixture(autouse=True)
def no_trace_left() -> Iterator[None]:
    yield
    RolloutTraceConfig.reset()
    stop_trace()


@dataclass
class Output:
    response_ids: list[int]


class Tokenizer:
    def decode(self, ids: list[int]) -> str:
        return "".join(map(str, ids))


class Loop:
    tokenizer = Tokenizer()

    @rollout_trace_op
    async def run(self, prompt: str, n: int = 1) -> Output:
        await self.generate(prompt)
        return Output([1, 2, 3])

    @rollout_trace_op
    async def generate(self, prompt: str) -> str:
        await asyncio.sleep(0)
        if prompt == "bad":
            raise ValueError(prompt)
        return prompt.upper()

    @rollout_trace_op
    def parse(self, text: str, *, strict: bool = False) -> list[str]:
        return text.split()


async def trajectory(index: int, prompt: str = "hello") -> Output:
    with rollout_trace_attr(sample_index=index, step=4, name="agent"):
        return await Loop().run(prompt, n=2)


def test_calls_nest_below_their_trajectory_also_when_many_run_at_once(tmp_path: Path) -> None:
    set_up_trace(tmp_path, "agent-loop-0")
    RolloutTraceConfig.init("p", "e", "jsonl", token2text=True)

    async def both() -> list[Output]:
        return await asyncio.gather(trajectory(0), trajectory(1))

    assert [output.response_ids for output in asyncio.run(both())] == [[1, 2, 3]] * 2
    spans = read_trace(tmp_path)
    assert len(spans) == 6
    for index in (0, 1):
        mine = {span["name"]: span["args"] for span in spans if span["args"]["sample_index"] == index}
        agent, run, generate = mine["agent"], mine["Loop.run"], mine["Loop.generate"]
        assert agent["trace_id"] == run["trace_id"] == generate["trace_id"]
        assert (run["parent_id"], generate["parent_id"]) == (agent["span_id"], run["span_id"])
        assert run["input"] == {"prompt": "hello", "n": 2} and run["step"] == 4
        assert run["output"] == {"response_ids": [1, 2, 3], "response_text": "123"}
        assert generate["output"] == "HELLO"


def test_a_failing_call_is_recorded_and_goes_on_failing(tmp_path: Path) -> None:
    set_up_trace(tmp_path, "w")
    RolloutTraceConfig.init("p", "e", "jsonl")
    with pytest.raises(ValueError, match="bad"):
        asyncio.run(trajectory(0, "bad"))
    assert {span["args"]["error"] for span in read_trace(tmp_path)} == {"ValueError"}


def test_without_a_backend_or_outside_a_trajectory_nothing_is_recorded(tmp_path: Path) -> None:
    set_up_trace(tmp_path, "w")
    asyncio.run(trajectory(0))
    RolloutTraceConfig.init("p", "e", "jsonl")
    asyncio.run(Loop().run("x"))
    assert read_trace(tmp_path) == []


def test_a_backend_must_be_known_and_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.trace\.backend"):
        RolloutTraceConfig.init("p", "e", "jaeger")
    monkeypatch.setitem(__import__("sys").modules, "weave", None)
    with pytest.raises(UnsupportedError, match="weave"):
        RolloutTraceConfig.init("p", "e", "weave")


def test_a_plain_method_is_a_span_as_well(tmp_path: Path) -> None:
    set_up_trace(tmp_path, "w")
    RolloutTraceConfig.init("p", "e", "jsonl")
    assert Loop().parse("outside a trajectory") == ["outside", "a", "trajectory"]
    with rollout_trace_attr(sample_index=3, name="agent"):
        assert Loop().parse("a b", strict=True) == ["a", "b"]
    found = {span["name"]: span["args"] for span in read_trace(tmp_path)}
    assert found["Loop.parse"]["input"] == {"text": "a b", "strict": True}
    assert found["Loop.parse"]["output"] == ["a", "b"]
    assert found["Loop.parse"]["parent_id"] == found["agent"]["span_id"]


def test_the_setting_of_the_process_can_be_asked_for(tmp_path: Path) -> None:
    RolloutTraceConfig.init(project_name="p", experiment_name="e", backend="jsonl", max_samples_per_step_per_worker=2)
    setting = RolloutTraceConfig.get_instance()
    assert (setting.project_name, setting.experiment_name, setting.backend) == ("p", "e", "jsonl")
    assert setting.max_samples_per_step_per_worker == 2
    RolloutTraceConfig.reset()
    assert RolloutTraceConfig.get_instance().project_name is None
