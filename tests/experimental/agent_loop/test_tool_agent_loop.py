# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Turns, tools, users and budgets of the tool agent loop; the policy is scripted."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from counting_tools import Asker, Counter, SilentAsker
from loop_parts import make_config, make_row
from omegaconf import OmegaConf
from scripted_client import ScriptedClient
from word_tokenizer import word_tokenizer

from verl.errors import DataError, UnsupportedError, WaitTimeout
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.experimental.agent_loop.tool_parser import FunctionCall
from verl.tools.schemas import ToolResponse
from verl.utils.chat_template import apply_chat_template

TOKENIZER = word_tokenizer()
CALL = '<tool_call> {"name": "calculator", "arguments": {"x": "1"}} </tool_call> <end>'


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


class OneTokenCalls:
    """Decodes token 199 ("w199") as a tool call; everything else is the word tokenizer's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(TOKENIZER, name)

    def decode(self, tokens: list[int], **kwargs: Any) -> str:
        return TOKENIZER.decode(tokens, **kwargs).replace("w199", CALL.removesuffix(" <end>"))


def write_tools(path: Path, class_name: str, **config: Any) -> str:
    OmegaConf.save(
        OmegaConf.create({"tools": [{"class_name": class_name, "config": {"type": "native"} | config}]}), path
    )
    return str(path)


def run(
    tmp_path: Path, client: ScriptedClient, tool: str = "Counter", params: dict[str, Any] | None = None, **options: Any
) -> AgentLoopOutput:
    row = options.pop("row", make_row("w1 w2", "x"))
    loop = make_loop(tmp_path, client, tool, **options)
    return asyncio.run(loop.run({"logprobs": True} | (params or {}), **row))


def make_loop(tmp_path: Path, client: ScriptedClient, tool: str, **options: Any) -> ToolAgentLoop:
    tools = write_tools(
        tmp_path / f"{tool}-{len(options)}.yaml", f"counting_tools.{tool}", **options.pop("tool_config", {})
    )
    config = make_config(
        tmp_path, **{"actor_rollout_ref.rollout.response_length": 64, "actor_rollout_ref.rollout.prompt_length": 64}
    )
    OmegaConf.update(config, "actor_rollout_ref.rollout.multi_turn.tool_config_path", tools)
    for key, value in options.items():
        OmegaConf.update(config, f"actor_rollout_ref.rollout.{key.replace('__', '.')}", value, force_add=True)
    return ToolAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=client,
        tokenizer=OneTokenCalls(),
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
    )


def test_a_conversation_with_tools_is_its_own_rendering(tmp_path: Path) -> None:
    client = ScriptedClient(turns=[ids("w199 <end>"), ids("w199 <end>"), ids("w7 <end>")])
    output = run(tmp_path, client)
    messages = [
        {"role": "user", "content": "w1 w2"},
        {"role": "assistant", "content": "w199"},
        {"role": "tool", "content": "w1"},
        {"role": "assistant", "content": "w199"},
        {"role": "tool", "content": "w2"},
        {"role": "assistant", "content": "w7"},
    ]
    tools = [{"type": "function", "function": {"name": "calculator"}}]
    whole = apply_chat_template(TOKENIZER, messages, tools=tools, add_generation_prompt=False)
    # The policy stops at <end>; the newline behind it would only come with another turn.
    assert output.prompt_ids + output.response_ids == whole[:-1]
    own = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert own == ids("w199 <end> w199 <end> w7 <end>")
    for mask, log_prob, version in zip(
        output.response_mask, output.response_logprobs, output.extra_fields["token_versions"], strict=True
    ):
        assert (log_prob, version) == ((-0.5, 3) if mask else (0.0, -1))
    assert output.num_turns == 6 and output.extra_fields["tool_rewards"] == [0.25, 0.25]
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (3, 3)
    # One request id for all turns; each prompt is the one before with what came since.
    requests = [call[0] for call in client.calls]
    assert len({request_id for request_id, _, _ in requests}) == 1
    assert requests[1][1][: len(requests[0][1])] == requests[0][1]


def test_what_a_tool_opens_it_releases_and_the_rows_arguments_reach_it(tmp_path: Path) -> None:
    Counter.opened, Counter.released, Counter.created_with = [], [], []
    row = make_row("w1", "x", tools_kwargs={"calculator": {"create_kwargs": {"ground_truth": "7"}}})
    run(tmp_path, ScriptedClient(turns=[ids("w199 <end>"), ids("w7 <end>")]), row=row)
    assert len(Counter.opened) == 1 and Counter.opened == Counter.released
    assert Counter.created_with == [{"ground_truth": "7"}]


@pytest.mark.parametrize(
    ("tool", "error", "reason"),
    [("Broken", "ConnectionError", "server is down"), ("Late", "TimeoutError", "no answer within 5 s")],
)
def test_a_tool_that_fails_is_told_to_the_model_and_the_sample_finishes(
    tmp_path: Path, tool: str, error: str, reason: str
) -> None:
    client = ScriptedClient(turns=[ids("w199 <end>"), ids("w7 <end>")])
    output = run(tmp_path, client, tool=tool)
    call = FunctionCall(name="calculator", arguments="{}")
    response, _, _ = asyncio.run(make_loop(tmp_path, client, tool)._call_tool(call, {}, None))
    assert response.text == f"Error when executing tool: {error}: {reason}"
    assert output.extra_fields["tool_metrics"] == [{"tool": "calculator", "error": error}]
    assert output.response_ids[-2:] == ids("w7 <end>")
    told = TOKENIZER.decode(client.calls[1][0][1])
    assert "Error" in told


@pytest.mark.parametrize(("answer", "told"), [("w41", "w41"), (41, "41"), (None, "")])
def test_whatever_a_tool_hands_back_becomes_one_text(tmp_path: Path, answer: Any, told: str) -> None:
    client = ScriptedClient(turns=[ids("w199 <end>"), ids("w7 <end>")])
    output = run(tmp_path, client, tool="Sloppy", tool_config={"answer": answer})
    # The failing release is a warning: the sample ends like any other.
    assert output.response_ids[-2:] == ids("w7 <end>") and len(client.calls) == 2
    start = output.response_mask.index(0)
    between = [t for t, own in zip(output.response_ids[start:], output.response_mask[start:], strict=True) if not own]
    assert between == ids(f"\ntool : {told} <end>\nassistant :")


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("calculator", "[1]", "TypeError: arguments must be a JSON object, not list"),
        ("calculator", "null", "not NoneType"),
        ("calculator", "{broken", "JSONDecodeError"),
        ("oracle", "{}", "there is no tool 'oracle'; there are: calculator"),
    ],
)
def test_a_malformed_call_is_explained_to_the_model(tmp_path: Path, name: str, arguments: str, told: str) -> None:
    loop = make_loop(tmp_path, ScriptedClient(), "Counter")
    call = FunctionCall(name=name, arguments=arguments)
    response, reward, metrics = asyncio.run(loop._call_tool(call, {}, None))
    assert told in response.text and reward == 0.0 and metrics["error"]


def test_a_film_is_refused_with_a_way_out(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, ScriptedClient(), "Counter")
    loop.processor = "any"
    with pytest.raises(UnsupportedError, match=r"tool calculator: videos.*return images or text"):
        loop._tool_message(FunctionCall(name="calculator", arguments="{}"), ToolResponse(video=["film"]))


def test_a_picture_for_a_text_model_names_the_processor(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="processor"):
        run(tmp_path, ScriptedClient(turns=[ids("w199 <end>")]), tool="Painter")


def test_the_trajectory_and_the_turn_have_budgets_of_their_own(tmp_path: Path) -> None:
    # response_length 10, turn limit 4. First turn 4 tokens, then 3 of the tool: the second may have min(4, 3).
    client = ScriptedClient(turns=[ids("w2 w3 w4 w199 w5 w6"), ids("w7 w8 w9 w10 w11")])
    bare = "{% for message in messages %}{{ message.content }} {% endfor %}"
    TOKENIZER.chat_template, saved = bare, TOKENIZER.chat_template
    try:
        output = run(
            tmp_path, client, params={"max_tokens": 4}, response_length=10, tool_config={"answer": "w40 w41 w42"}
        )
    finally:
        TOKENIZER.chat_template = saved
    assert [call[0][2]["max_tokens"] for call in client.calls] == [4, 3]
    assert output.response_mask == [1, 1, 1, 1, 0, 0, 0, 1, 1, 1]
    assert len(output.response_ids) == len(output.response_logprobs) == 10


def test_a_configured_turn_limit_does_the_same_and_the_callers_parameters_stay(tmp_path: Path) -> None:
    client = ScriptedClient(turns=[ids("w2 w3 w4 w5 w6")])
    params = {"temperature": 0.5, "seed": 11}
    output = run(tmp_path, client, params=params, multi_turn__max_tokens_per_turn=2)
    assert client.calls[0][0][2] == {"logprobs": True, "temperature": 0.5, "seed": 11, "max_tokens": 2}
    assert params == {"temperature": 0.5, "seed": 11} and len(output.response_ids) == 2


def test_each_turn_draws_other_random_numbers(tmp_path: Path) -> None:
    client = ScriptedClient(turns=[ids("w199 <end>"), ids("w7 <end>")])
    run(tmp_path, client, params={"seed": 5})
    assert len({call[0][2]["seed"] for call in client.calls}) == 2


def test_a_tools_answer_that_leaves_no_room_ends_the_trajectory(tmp_path: Path) -> None:
    client = ScriptedClient(turns=[ids("w199 <end>")])
    output = run(tmp_path, client, response_length=6)
    assert len(client.calls) == 1 and output.response_mask == [1, 1]


def test_turn_limits_end_the_trajectory(tmp_path: Path) -> None:
    endless = [ids("w199 <end>")]
    assert (
        len(_calls(run(tmp_path, client := ScriptedClient(turns=endless), multi_turn__max_assistant_turns=2), client))
        == 2
    )
    client = ScriptedClient(turns=endless)
    run(tmp_path, client, multi_turn__max_user_turns=1)
    assert len(client.calls) == 2


def _calls(_: AgentLoopOutput, client: ScriptedClient) -> list[Any]:
    return client.calls


def test_a_user_or_a_tool_that_never_answers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl.experimental.agent_loop.tool_agent_loop.TOOL_DEADLINE_S", 0.2)
    path = tmp_path / "users.yaml"
    OmegaConf.save(OmegaConf.create({"interaction": [{"class_name": "counting_tools.SilentAsker"}]}), path)
    row = make_row("w1", "x", interaction_kwargs={"name": "silentasker"})
    SilentAsker.finished = []
    with pytest.raises(WaitTimeout, match=r"waited 0\.2 s for an answer from interaction silentasker"):
        run(tmp_path, ScriptedClient(turns=[ids("w7 <end>")]), row=row, multi_turn__interaction_config_path=str(path))
    assert len(SilentAsker.finished) == 1
    # A tool's failure is the model's to hear.
    client = ScriptedClient(turns=[ids("w199 <end>"), ids("w8 <end>")])
    output = run(tmp_path, client, tool="NeverOpen")
    assert output.extra_fields["tool_metrics"] == [{"tool": "calculator", "error": "WaitTimeout"}]


def test_a_user_answers_until_satisfied(tmp_path: Path) -> None:
    Asker.finished = []
    path = tmp_path / "users.yaml"
    entry = {"class_name": "counting_tools.Asker", "config": {"turns": 2}}
    OmegaConf.save(OmegaConf.create({"interaction": [entry]}), path)
    client = ScriptedClient(turns=[ids("w7 <end>"), ids("w8 <end>")])
    row = make_row("w1", "x", interaction_kwargs={"name": "asker"})
    output = run(tmp_path, client, row=row, multi_turn__interaction_config_path=str(path))
    assert output.extra_fields["turn_scores"] == [0.5, 0.5]
    words = TOKENIZER.decode(output.response_ids).split()
    assert words == ["w7", "<end>", "user", ":", "w50", "<end>", "assistant", ":", "w8", "<end>"]
    assert Asker.finished == [client.calls[0][0][0]]
    with pytest.raises(DataError, match=r"interaction_kwargs.name of the row with index .* one of \['asker'\]"):
        run(tmp_path, client, row=make_row("w1", "x", interaction_kwargs={"name": "nobody"}),
            multi_turn__interaction_config_path=str(path))  # fmt: skip
