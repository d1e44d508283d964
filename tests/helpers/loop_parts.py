# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The parts of a configuration that agent loops and reward loops read."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

REWARD_FILE = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    if solution_str == "boom":
        raise ValueError("injected")
    return float(solution_str == ground_truth)
"""


def make_config(model: Path, reward_path: Path | None = None, **overrides: Any) -> DictConfig:
    """A whole configuration for a tiny model; `overrides` are dotted keys."""
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "model": {"path": str(model), "trust_remote_code": False, "external_lib": None},
                "rollout": {
                    "prompt_length": 16,
                    "response_length": 12,
                    "temperature": 1.0,
                    "top_k": -1,
                    "top_p": 1.0,
                    "n": 2,
                    "calculate_log_probs": True,
                    "val_kwargs": {"temperature": 0, "top_k": -1, "top_p": 1.0, "n": 1, "do_sample": False},
                    "agent": {
                        "num_workers": 1,
                        "default_agent_loop": "single_turn_agent",
                        "agent_loop_config_path": None,
                    },
                    "multi_turn": {
                        "enable": False,
                        "max_assistant_turns": None,
                        "max_user_turns": None,
                        "max_parallel_calls": 1,
                        "max_tool_response_length": 256,
                        "tool_response_truncate_side": "middle",
                        "tool_config_path": None,
                        "interaction_config_path": None,
                        "format": "hermes",
                    },
                },
            },
            "data": {
                "prompt_key": "prompt",
                "reward_fn_key": "data_source",
                "max_prompt_length": 16,
                "max_response_length": 12,
                "truncation": "error",
                "tool_config_path": None,
                "apply_chat_template_kwargs": {},
                "custom_cls": {"path": None, "name": None},
            },
            "reward": {
                "num_workers": 1,
                "on_error": "drop_sample",
                "timeout": 5.0,
                "custom_reward_function": {"path": str(reward_path) if reward_path else None, "name": "compute_score"},
                "reward_manager": {"source": "register", "name": "naive"},
                "sandbox_fusion": None,
            },
            "algorithm": {},
            "trainer": {"seed": None},
        }
    )
    for key, value in overrides.items():
        OmegaConf.update(config, key, value, force_add=True)
    return config


def make_row(question: str, answer: str, **more: Any) -> dict[str, Any]:
    """A row as `RLHFDataset` gives it."""
    return {
        "raw_prompt": [{"role": "user", "content": question}],
        "data_source": "sums",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"index": 0},
        "index": 0,
        "tools_kwargs": {},
        "interaction_kwargs": {},
    } | more
