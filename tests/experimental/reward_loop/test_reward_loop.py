# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A reward worker: policies on failure, custom functions and managers, no silent zero."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_parts import make_config, make_row
from omegaconf import OmegaConf

from verl.errors import ConfigError
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker, check_policy
from verl.trainer.ppo.reward import extract_reward, get_custom_reward_fn, load_reward_manager


def fields(response: str, truth: Any = "x", length: int | None = None, **row: Any) -> dict[str, Any]:
    return {
        "uid": "u1",
        "row": make_row("q", truth, **row),
        "prompt_ids": np.array([1, 2]),
        "response_ids": np.arange(len(response)),
        "response_str": response,
        "response_length": len(response) if length is None else length,
        "num_turns": 2,
        "extra_fields": {"turn_scores": [0.5]},
    }


def score_all(config: Any, *batch: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    async def run() -> Any:
        worker = RewardLoopWorker(config)
        await worker.ready()
        try:
            return await worker.score_many(list(batch)), await worker.statistics()
        finally:
            await worker.pool.close()

    return asyncio.run(run())


def write(tmp_path: Path, source: str, name: str = "reward.py") -> Path:
    path = tmp_path / name
    path.write_text(source)
    return path


def test_the_custom_function_is_called_once_per_sample_with_upstreams_arguments(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    path = write(
        tmp_path,
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0.0, **kwargs):\n"
        f"    open({str(log)!r}, 'a').write('x')\n"
        "    assert data_source == 'sums' and extra_info['num_turns'] == 2 and extra_info['index'] == 0\n"
        "    assert extra_info['turn_scores'] == [0.5] and extra_info['rollout_reward_scores'] == {} and not kwargs\n"
        "    return 0.37 + bonus\n",
    )
    config = make_config(tmp_path, path, **{"reward.custom_reward_function.reward_kwargs": {"bonus": 0.5}})
    answers, counts = score_all(config, *(fields(text) for text in "abcd"))
    assert [answer["reward_score"] for answer in answers] == [pytest.approx(0.87)] * 4
    assert log.read_text() == "xxxx"
    assert counts == {"scored": 4, "errors": 0, "timeouts": 0, "kills": 0}


@pytest.mark.parametrize(
    "body",
    [
        "async def compute_score(**kw):\n    return .25",
        "class Scorer:\n    async def __call__(self, **kw):\n        return .25\ncompute_score = Scorer()",
        "class Scorer:\n    def __call__(self, **kw):\n        return {'score': .25}\ncompute_score = Scorer()",
        "import numpy as np\ndef compute_score(**kw):\n    return np.float32(.25)",
        "import functools\ndef f(value, **kw):\n    return value\ncompute_score = functools.partial(f, .25)",
        "async def inner():\n    return .25\ndef compute_score(**kw):\n    return inner()",
    ],
)
def test_functions_of_every_kind(tmp_path: Path, body: str) -> None:
    answers, _ = score_all(make_config(tmp_path, write(tmp_path, body)), fields("a"))
    assert (answers[0]["reward_score"], answers[0]["reward_error"]) == (0.25, None)


def test_a_configuration_that_nobody_may_change_is_enough(tmp_path: Path) -> None:
    config = make_config(tmp_path, write(tmp_path, "def compute_score(**kw):\n    return .25"))
    OmegaConf.set_struct(config, True)
    OmegaConf.set_readonly(config, True)
    answers, _ = score_all(config, fields("a"))
    assert answers[0]["reward_score"] == 0.25


@pytest.mark.parametrize("value", ["None", "'0.5'", "float('nan')", "[1.0]"])
def test_what_is_no_score_is_a_reward_error(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, f"def compute_score(**kw):\n    return {value}")
    answers, counts = score_all(make_config(tmp_path, path), fields("a"))
    assert answers[0]["reward_score"] is None and "the reward function returned" in answers[0]["reward_error"]
    assert counts["errors"] == 1 and counts["scored"] == 0


HANGS = """
import time
def compute_score(solution_str, **kw):
    time.sleep(60 if solution_str == "hang" else 0)
    return 1.0
"""


@pytest.mark.parametrize(("policy", "value"), [("drop_sample", None), ("drop_group", None), (-0.5, -0.5), (0, 0.0)])
def test_a_hung_call_gets_the_policy_and_is_counted(tmp_path: Path, policy: Any, value: Any) -> None:
    config = make_config(tmp_path, write(tmp_path, HANGS), **{"reward.timeout": 1.0, "reward.on_error": policy})
    answers, counts = score_all(config, fields("a"), fields("b"), fields("hang"), fields("d"))
    assert [answer["reward_score"] for answer in answers] == [1.0, 1.0, value, 1.0]
    assert [bool(answer["reward_error"]) for answer in answers] == [False, False, True, False]
    assert answers[2]["reward_error"].startswith("timeout: ")
    assert counts == {"scored": 3, "errors": 1, "timeouts": 1, "kills": 1}


def test_the_failing_sample_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, "def compute_score(**kw):\n    raise ZeroDivisionError('verifier broke')")
    with caplog.at_level(logging.WARNING):
        score_all(make_config(tmp_path, path), *(fields(f"answer {index}", "truth") for index in range(9)))
    shown = [record.getMessage() for record in caplog.records if "scoring failed" in record.getMessage()]
    assert len(shown) == 5
    assert "ZeroDivisionError: verifier broke" in shown[0] and "answer 0" in shown[0] and "truth" in shown[0]


def test_a_row_whose_truth_has_another_form_fails_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "def compute_score(**kw):\n    return 1.0")
    odd = fields("b")
    odd["row"]["reward_model"] = "ground_truth"
    answers, _ = score_all(make_config(tmp_path, path), fields("a"), odd)
    assert [answer["reward_score"] for answer in answers] == [1.0, None]
    assert "no ground truth" in answers[1]["reward_error"]


@pytest.mark.parametrize("policy", [None, True, "ignore", "zero"])
def test_a_policy_is_one_of_three(policy: Any) -> None:
    with pytest.raises(ConfigError, match=r"reward\.on_error"):
        check_policy(policy)


MANAGER = """
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

class Mine(RewardManagerBase):
    async def run_single(self, data):
        assert len(data) == 1
        row = data[0]
        length = int(row.batch["attention_mask"][row.batch["prompts"].shape[-1]:].sum())
        text = self.tokenizer.decode(row.batch["responses"][:length].tolist())
        inner = await self.compute_score(data_source="d", solution_str=text, ground_truth=None, extra_info={})
        return {"reward_score": inner + length, "reward_extra_info": {"text": text}}

class Bare(RewardManagerBase):
    async def run_single(self, data):
        return 0.75

class Broken(RewardManagerBase):
    async def run_single(self, data):
        raise RuntimeError("manager broke")
"""


def test_a_custom_manager_gets_a_row_a_tokenizer_and_a_killable_function(tmp_path: Path, tiny_model_dir: Path) -> None:
    path = write(tmp_path, MANAGER, "manager.py")
    reward = write(tmp_path, "def compute_score(**kw):\n    return 0.5")
    section = {"source": "importlib", "name": "x", "module": {"path": str(path), "name": "Mine"}}
    config = make_config(tiny_model_dir, reward, **{"reward.reward_manager": section})
    given = fields("12") | {"response_ids": np.array([3, 4]), "response_length": 2}
    (answer,), _ = score_all(config, given)
    assert answer == {"reward_score": 2.5, "reward_extra_info": {"text": "12"}, "reward_error": None}
    config.reward.reward_manager.module.name = "Bare"
    (answer,), _ = score_all(config, given)
    assert answer == {"reward_score": 0.75, "reward_extra_info": {}, "reward_error": None}
    config.reward.reward_manager.module.name = "Broken"
    (answer,), _ = score_all(config, given)
    assert answer["reward_score"] is None and "manager broke" in answer["reward_error"]


def test_two_files_never_share_their_code(tmp_path: Path) -> None:
    a = write(tmp_path, "def compute_score(**kw):\n    return 1.0", "a.py")
    b = write(tmp_path, "def compute_score(**kw):\n    return 2.0", "b.py")
    results = [score_all(make_config(tmp_path, path), fields("x"))[0][0]["reward_score"] for path in (a, b, a)]
    assert results == [1.0, 2.0, 1.0]
    functions = [get_custom_reward_fn(make_config(tmp_path, path)) for path in (a, b, a)]
    assert [function() for function in functions] == [1.0, 2.0, 1.0] and functions[0] is functions[2]


def test_an_unknown_data_source_is_an_error_and_no_zero(tmp_path: Path) -> None:
    (answer,), _ = score_all(make_config(tmp_path), fields("x"))
    assert answer["reward_score"] is None and "no built-in scorer" in answer["reward_error"]
    (answer,), _ = score_all(make_config(tmp_path), fields("#### 42", "42", data_source="openai/gsm8k"))
    assert answer["reward_score"] == 1.0 and answer["reward_extra_info"] == {"acc": 1.0}


def test_a_row_without_ground_truth_is_a_reward_error(tmp_path: Path) -> None:
    (answer,), _ = score_all(make_config(tmp_path), fields("x", reward_model=None))
    assert "no ground truth" in answer["reward_error"]


def test_unknown_sources_and_names_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    config = make_config(tmp_path, **{"reward.reward_manager": {"source": "register", "name": "naiv"}})
    with pytest.raises(ConfigError, match="did you mean 'naive'"):
        load_reward_manager(config, None)
    config.reward.reward_manager = {"source": "magic", "name": "naive"}
    with pytest.raises(ConfigError, match=r"reward\.reward_manager\.source"):
        load_reward_manager(config, None)


def test_extras_are_optional_in_a_scored_batch() -> None:
    class Batch:
        batch = {"rm_scores": "scores"}
        non_tensor_batch = {"acc": [1.0]}
        meta_info: dict[str, Any] = {}

    assert extract_reward(Batch()) == ("scores", {})
    Batch.meta_info = {"reward_extra_keys": ["acc", "absent"]}
    assert extract_reward(Batch()) == ("scores", {"acc": [1.0]})


def test_scoring_by_texts_loads_neither_torch_nor_transformers(tmp_path: Path) -> None:
    script = (
        "import sys, verl.experimental.reward_loop.reward_loop\n"
        "print(sorted(set(sys.modules) & {'torch', 'transformers', 'vllm', 'datasets', 'sympy'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
