# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Configuration files of agent loops, and the text form of tool turns that gpt-oss templates need."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

import verl
from verl.errors import ConfigError

__all__ = [
    "add_generation_prompt_for_gpt_oss",
    "build_gpt_oss_tool_response_text",
    "format_gpt_oss_tool_response_manually",
    "load_agent_loop_config",
    "resolve_config_path",
]


def resolve_config_path(config_path: str) -> str:
    """Absolute path of a configuration file.

    A relative path is looked for under the current directory, the directory that holds the package, and the package.
    """
    path = Path(config_path).expanduser()
    package = Path(verl.__file__).resolve().parent
    tried = [path] if path.is_absolute() else [Path.cwd() / path, package.parent / path, package / path]
    for candidate in tried:
        if candidate.is_file():
            return str(candidate.resolve())
    raise ConfigError(
        "no such agent loop configuration",
        where="actor_rollout_ref.rollout.agent.agent_loop_config_path",
        got=config_path,
        remedy="tried: " + ", ".join(map(str, tried)),
    )


def load_agent_loop_config(config_path: str | None) -> list[dict[str, Any]]:
    """The entries of an agent loop configuration, each with `name` and `_target_`; read where the job starts.

    Workers get the entries and not the path, which may mean nothing on their node.
    """
    if not config_path:
        return []
    path = resolve_config_path(config_path)
    entries = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    if not isinstance(entries, list) or not all({"name", "_target_"} <= set(entry) for entry in entries):
        raise ConfigError("the file must hold a list of {name, _target_, ...}", where=path)
    return entries


def format_gpt_oss_tool_response_manually(tool_response: str, tool_call_name: str) -> str:
    """A tool's answer as gpt-oss reads it: the tool speaks to the assistant on the commentary channel."""
    return f"<|start|>functions.{tool_call_name} to=assistant<|channel|>commentary<|message|>{tool_response}<|end|>"


def add_generation_prompt_for_gpt_oss(message_content: str) -> str:
    """The text with the assistant's turn opened after it."""
    return message_content + "<|start|>assistant"


def build_gpt_oss_tool_response_text(messages: list[dict[str, Any]], tool_call_names: list[str]) -> str:
    """The answers of several tools, one turn each, and the assistant's turn opened after them."""
    turns = (
        format_gpt_oss_tool_response_manually(message["content"], name)
        for message, name in zip(messages, tool_call_names, strict=True)
    )
    return add_generation_prompt_for_gpt_oss("".join(turns))
