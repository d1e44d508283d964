# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The agent worker without Ray: loops of every origin, seeds, versions, one call for a group."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_parts import make_config, make_row
from omegaconf import OmegaConf
from scripted_client import ScriptedClient
from word_tokenizer import BARE, word_tokenizer

from verl.errors import ConfigError, DataError
from verl.experimental.agent_loop import AgentLoopWorker
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.experimental.agent_loop.coalesce import Coalescer
from verl.experimental.agent_loop.convert import to_trajectory
from verl.experimental.agent_loop.jobs import GroupJob, reproducible_seed
from verl.experimental.agent_loop.postprocess import assemble
from verl.experimental.agent_loop.utils import load_agent_loop_config, resolve_config_path
from verl.experimental.agent_loop.worker import banned_tokens, trajectory_seed


def run_group(worker: AgentLoopWorker, row: dict[str, Any] | None = None, n: int = 3, **more: Any) -> Any:
    return asyncio.run(worker.generate_group(row or make_row("12+34=", "x"), "u", n, **more))


def test_a_single_turn_group_is_one_call_with_parameters_of_its_own_each(tiny_model_dir: Path) -> None:
    client = ScriptedClient()
    meta, group = run_group(AgentLoopWorker(make_config(tiny_model_dir), llm_client=client), policy_version=2)
    assert [len(call) for call in client.calls] == [3]
    params = [params for _, _, params in client.calls[0]]
    assert params[0] == {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True}
    assert [request_id for request_id, _, _ in client.calls[0]] == [row.extra_fields["request_id"] for row in group]
    assert len({row.extra_fields["request_id"] for row in group}) == 3
    assert meta.num_trajectories == len(group) == 3 and group[0].num_turns == 2


def test_validation_uses_its_own_sampling(tiny_model_dir: Path) -> None:
    client = ScriptedClient()
    run_group(AgentLoopWorker(make_config(tiny_model_dir), llm_client=client), validate=True)
    assert client.calls[0][0][2]["temperature"] == 0 and not client.calls[0][0][2]["logprobs"]


def test_a_greedy_job_is_greedy_whatever_the_configuration_says(tiny_model_dir: Path) -> None:
    worker = AgentLoopWorker(make_config(tiny_model_dir), llm_client=ScriptedClient())
    assert worker._params(GroupJob({}, "u", 1, greedy=True), 0)["temperature"] == 0
    assert worker._params(GroupJob({}, "u", 1), 0)["temperature"] == 1.0


def test_seeds_are_passed_only_where_asked_for_and_a_replay_repeats_them(tiny_model_dir: Path) -> None:
    config = make_config(tiny_model_dir)
    assert reproducible_seed(config) is None
    config = make_config(tiny_model_dir, **{"actor_rollout_ref.rollout.full_determinism": True, "trainer.seed": 5})
    assert reproducible_seed(config) == 5
    seeds = []
    for _ in range(2):
        client = ScriptedClient()
        run_group(AgentLoopWorker(config, llm_client=client))
        seeds.append([params["seed"] for _, _, params in client.calls[0]])
    assert seeds[0] == seeds[1] == [trajectory_seed(5, "u", index) for index in range(3)]
    assert len(set(seeds[0])) == 3 and trajectory_seed(5, "v", 0) != seeds[0][0]


def test_tools_are_in_the_prompt_of_a_single_turn_too(tiny_model_dir: Path, tmp_path: Path) -> None:
    function = {
        "name": "calculator",
        "description": "",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }
    tool = {"class_name": "verl.tools.base_tool.BaseTool", "tool_schema": {"type": "function", "function": function}}
    path = tmp_path / "tools.yaml"
    OmegaConf.save(OmegaConf.create({"tools": [tool]}), path)
    template = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}{{ messages[0].content }}"
    config = make_config(
        tiny_model_dir,
        **{"data.tool_config_path": str(path), "actor_rollout_ref.model.custom_chat_template": template},
    )
    client = ScriptedClient()
    worker = AgentLoopWorker(config, llm_client=client)
    run_group(worker, make_row("1+1=", "2"), n=1)
    assert worker.tokenizer.decode(client.calls[0][0][1]) == "calculator1+1="


@pytest.mark.parametrize(
    ("truncation", "kept"),
    [
        ("left", [*range(5, 25)]),
        ("right", [*range(20)]),
        ("middle", [*range(10), *range(15, 25)]),
        ("error", None),
    ],
)
def test_a_prompt_longer_than_allowed_with_its_tools_is_cut_as_the_data_section_says(
    tmp_path: Path, truncation: str, kept: list[int] | None
) -> None:
    """15 words and a tool of 10 against 20: what the filter of the data set measures is what is sent."""
    tokenizer = word_tokenizer(BARE)
    tokenizer.save_pretrained(tmp_path / "model")
    schema = {"type": "object", "properties": {}, "required": []}
    function = {"name": "calculator", "description": "", "parameters": schema}
    tool = {"class_name": "verl.tools.base_tool.BaseTool", "tool_schema": {"type": "function", "function": function}}
    OmegaConf.save(OmegaConf.create({"tools": [tool]}), tmp_path / "tools.yaml")
    rollout = "actor_rollout_ref.rollout"
    keys = {f"{rollout}.prompt_length": 20, "data.truncation": truncation, "data.max_prompt_length": 20}
    config = make_config(tmp_path / "model", **keys, **{"data.tool_config_path": str(tmp_path / "tools.yaml")})
    client, row = ScriptedClient(), make_row(" ".join(f"w{index}" for index in range(15)), "x", index=7)
    worker = AgentLoopWorker(config, llm_client=client)
    if kept is None:
        with pytest.raises(DataError, match=r"row with index 7.*25 tokens.*at most 20"):
            run_group(worker, row, n=1)
        return
    run_group(worker, row, n=1)
    words = [
        "tool",
        "calculator",
        *["one", "two", "three", "four", "five", "six", "seven", "eight"],
        *(f"w{i}" for i in range(15)),
    ]
    assert tokenizer.decode(client.calls[0][0][1]).split() == [words[index] for index in kept]


class Echo(AgentLoopBase):
    """A loop of a recipe: one attribute of its own, nothing measured, the server's summary passed on."""

    def __init__(self, *args: Any, greeting: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.greeting = greeting

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        prompt = await self.apply_chat_template(kwargs["raw_prompt"])
        output = await self.server_manager.generate("r", prompt_ids=prompt, sampling_params=sampling_params)
        sampling_params["temperature"] = 99
        assert self.config.actor_rollout_ref.rollout.n == 2 and self.rollout_config.response_length == 12
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=output.token_ids,
            response_mask=[1] * len(output.token_ids),
            reward_score=0.5,
            num_turns=7,
            metrics=AgentLoopMetrics(),
            extra_fields={"greeting": self.greeting, "max_global_steps": 3},
        )


def test_loops_come_from_the_registry_by_row_or_default(tiny_model_dir: Path) -> None:
    register("echo_in_test")(Echo)
    worker = AgentLoopWorker(make_config(tiny_model_dir), llm_client=ScriptedClient())
    meta, group = run_group(worker, make_row("1+1=", "2", agent_name="echo_in_test"))
    assert group[0].num_turns == 7 and meta.rewards == (0.5,) * 3
    assert (group[0].token_versions == 3).all() and group[0].metrics["generate_sequences"] > 0
    with pytest.raises(ConfigError, match=r"unknown agent loop.*echo_in_test"):
        run_group(worker, make_row("1+1=", "2", agent_name="echo_in_tests"))


def test_loops_come_from_a_file_that_the_driver_reads(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    entry = {"name": "echo", "_target_": f"{__name__}.Echo", "greeting": "hello"}
    OmegaConf.save(OmegaConf.create([entry]), folder / "loops.yaml")
    monkeypatch.chdir(folder)
    entries = load_agent_loop_config("loops.yaml")
    assert resolve_config_path("loops.yaml") == str(folder / "loops.yaml")
    monkeypatch.chdir(tmp_path / "elsewhere")
    worker = AgentLoopWorker(make_config(tiny_model_dir), llm_client=ScriptedClient(), agent_loops=entries)
    _, group = run_group(worker, make_row("1+1=", "2", agent_name="echo"))
    assert group[0].extra_fields["greeting"] == "hello"
    with pytest.raises(ConfigError, match=r"tried: .*elsewhere/loops\.yaml"):
        load_agent_loop_config("loops.yaml")


def test_multi_turn_chooses_the_tool_loop_where_the_row_does_not(tiny_model_dir: Path) -> None:
    config = make_config(tiny_model_dir, **{"actor_rollout_ref.rollout.multi_turn.enable": True})
    _, group = run_group(AgentLoopWorker(config, llm_client=ScriptedClient()), n=1)
    assert "tool_rewards" in group[0].extra_fields and group[0].num_turns == 2


@pytest.mark.parametrize("multi_turn", [False, True])
def test_a_configuration_that_nobody_may_change_is_enough(tiny_model_dir: Path, multi_turn: bool) -> None:
    config = make_config(tiny_model_dir, **{"actor_rollout_ref.rollout.multi_turn.enable": multi_turn})
    OmegaConf.set_struct(config, True)
    OmegaConf.set_readonly(config, True)
    client = ScriptedClient()
    for validate in (False, True):
        _, group = run_group(AgentLoopWorker(config, llm_client=client), n=2, validate=validate)
        assert len(group) == 2 and all(row.response_mask.any() for row in group)


def test_a_failing_loop_fails_the_group_with_its_own_error(tiny_model_dir: Path) -> None:
    class Failing(ScriptedClient):
        async def stream_group(self, requests: Any) -> Any:
            raise ConnectionError("server is down")
            yield

    with pytest.raises(ConnectionError, match="server is down"):
        run_group(AgentLoopWorker(make_config(tiny_model_dir), llm_client=Failing()))


def output(count: int, **more: Any) -> AgentLoopOutput:
    options = {
        "prompt_ids": [1],
        "response_ids": list(range(count)),
        "response_mask": [1] * count,
        "response_logprobs": [-0.1] * count,
        "metrics": AgentLoopMetrics(),
    } | more
    return AgentLoopOutput(**options)


def convert(given: AgentLoopOutput) -> Any:
    return to_trajectory(given, uid="u", row={}, policy_version=8, prompt_length=2, response_length=4)


def test_all_per_token_arrays_are_cut_together() -> None:
    row = convert(output(6, extra_fields={"token_versions": [1, 1, 2, 2, 3, 3]}))
    assert [len(array) for array in (row.response_ids, row.response_mask, row.log_probs, row.token_versions)] == [4] * 4
    assert row.token_versions.tolist() == [1, 1, 2, 2] and row.versions == (1, 2)
    assert row.extra_fields["finish_reason"] == "length"
    assert "finish_reason" not in convert(output(4)).extra_fields


def test_versions_fall_back_to_the_servers_and_then_to_the_submission() -> None:
    assert convert(output(2, extra_fields={"max_global_steps": 5})).token_versions.tolist() == [5, 5]
    row = convert(output(3, response_mask=[1, 0, 1]))
    assert row.token_versions.tolist() == [8, -1, 8] and row.response_mask.dtype == np.bool_


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"response_mask": [1]}, "response_mask of another length"),
        ({"response_logprobs": [0.0]}, "response_logprobs of another length"),
        ({"prompt_ids": [1, 2, 3]}, r"longer than rollout\.prompt_length"),
    ],
)
def test_what_a_loop_returns_is_checked(more: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        convert(output(3, **more))


def test_vision_models_must_not_write_placeholders(tiny_model_dir: Path) -> None:
    class Processor:
        image_token_id, video_token_id = 9, 10

    assert banned_tokens(Processor()) == (9, 10) and banned_tokens(None) == ()
    worker = AgentLoopWorker(make_config(tiny_model_dir), llm_client=ScriptedClient())
    job = GroupJob({}, "u", 1)
    assert "logit_bias" not in worker._params(job, 0)
    worker.banned = (9, 10)
    assert worker._params(job, 0)["logit_bias"] == {9: -100.0, 10: -100.0}
    # Who bans tokens of their own has both.
    worker.sampling_params[False] = {"logit_bias": {3: -100.0}}
    assert worker._params(job, 0)["logit_bias"] == {3: -100.0, 9: -100.0, 10: -100.0}


def test_coalesced_calls_share_a_failure_and_survive_a_cancelled_sibling() -> None:
    calls: list[list[int]] = []

    async def send(batch: list[int]) -> Any:
        calls.append(batch)
        for index, value in enumerate(batch):
            if value == 13:
                raise ValueError("unlucky")
            yield index, value * 2

    async def run() -> None:
        line: Coalescer[int, int] = Coalescer(send)
        assert await asyncio.gather(*map(line.ask, (1, 2, 3))) == [2, 4, 6]
        results = await asyncio.gather(*map(line.ask, (12, 13, 14)), return_exceptions=True)
        assert results[0] == 24 and [type(result) for result in results[1:]] == [ValueError, ValueError]
        kept, dropped = asyncio.ensure_future(line.ask(4)), asyncio.ensure_future(line.ask(5))
        await asyncio.sleep(0)
        dropped.cancel()
        assert await kept == 8
        await line.close()

    asyncio.run(run())
    assert calls == [[1, 2, 3], [12, 13, 14], [4]]


def test_a_reward_starts_while_siblings_are_still_generating(tiny_model_dir: Path) -> None:
    order: list[str] = []

    class Recording(ScriptedClient):
        def _answer(self, *request: Any) -> Any:
            order.append("generated")
            return super()._answer(*request)

    class Handle:
        """Stands where Ray's actor handle stands: `score_many.remote`."""

        class score_many:
            @staticmethod
            async def remote(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
                order.append("scored")
                return [{"reward_score": 1.0, "reward_error": None, "reward_extra_info": {}}] * len(batch)

    worker = AgentLoopWorker(
        make_config(tiny_model_dir), llm_client=Recording(straggle_s=0.1), reward_loop_worker_handles=[Handle()]
    )
    meta, _ = run_group(worker)
    assert meta.rewards == (1.0, 1.0, 1.0)
    assert order == ["generated", "scored"] * 3


@pytest.mark.parametrize(
    ("policy", "validate", "left"),
    [
        ("drop_group", False, [None, None, None]),
        ("drop_sample", False, [None, 1.0, 1.0]),
        # What was scored counts in a validation, whatever became of its siblings.
        ("drop_group", True, [None, 1.0, 1.0]),
    ],
)
def test_a_failed_score_drops_its_group_in_a_batch_as_in_a_stream(
    tiny_model_dir: Path, policy: str, validate: bool, left: list[float | None]
) -> None:
    class Handle:
        """Fails the first trajectory that it is asked about."""

        class score_many:
            asked = 0

            @classmethod
            async def remote(cls, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
                answers = []
                for _ in batch:
                    score, error = (1.0, None) if cls.asked else (None, "verifier broke")
                    answers.append({"reward_score": score, "reward_error": error, "reward_extra_info": {}})
                    cls.asked += 1
                return answers

    config = make_config(tiny_model_dir, **{"reward.on_error": policy})
    worker = AgentLoopWorker(config, llm_client=ScriptedClient(), reward_loop_worker_handles=[Handle()])
    jobs = [GroupJob(make_row("12+34=", "x"), uid, 3, validate=validate) for uid in ("a", "b")]
    broken, whole = asyncio.run(worker.generate_groups(jobs))
    assert [item.reward_score for item in broken] == left
    assert [item.reward_score for item in whole] == [1.0, 1.0, 1.0]
    length = worker.rollout_config.response_length
    batch = assemble([broken], pad_token_id=0, prompt_length=16, response_length=length, temperature=1.0)
    assert batch.batch["response_mask"].any(-1).tolist() == [score is not None for score in left]
