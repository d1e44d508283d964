# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Module → floor and room. Read by test_layers.py; the first pattern that matches a module decides."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Place:
    """Where a module lives: `floor` 0 to 9, `room` the group that may import itself; a façade is imported by nobody."""

    floor: int
    room: str
    facade: bool = False


# (pattern, floor, room, façade). Special homes come before the folder they lie in.
TABLE: tuple[tuple[str, int, str, bool], ...] = (
    # Façades: old paths
    ("verl.workers.config*", 1, "facade", True),
    ("verl.trainer.config*", 1, "facade", True),
    ("verl.utils.config", 1, "facade", True),
    ("verl.utils.device", 2, "facade", True),
    ("verl.utils.profiler.config", 1, "facade", True),
    ("verl.utils.torch_functional", 2, "facade", True),
    ("verl.utils.seqlen_balancing", 0, "facade", True),
    ("verl.utils.tracking", 7, "facade", True),
    ("verl.trainer.ppo.core_algos", 0, "facade", True),
    ("verl.trainer.ppo.rollout_corr_helper", 0, "facade", True),
    ("verl.single_controller.ray.base", 4, "facade", True),
    ("verl.workers.utils.padding", 6, "facade", True),
    ("verl.workers.reward_manager*", 7, "facade", True),
    ("verl.workers.fsdp_workers", 6, "facade", True),
    ("verl.models.transformers*", 4, "facade", True),
    # F9: front doors
    ("verl.config.front_door", 9, "front_door", False),
    ("verl.config.compose", 9, "front_door", False),
    ("verl.trainer.main_*", 9, "mains", False),
    ("verl.trainer.sft_trainer", 9, "mains", False),
    ("verl.experimental.fully_async_policy.fully_async_main", 9, "mains", False),
    ("verl.experimental.one_step_off_policy.main_ppo", 9, "mains", False),
    ("verl.model_merger*", 9, "model_merger", False),
    ("verl.doctor*", 9, "doctor", False),
    ("verl.simulator*", 9, "simulator", False),
    ("verl.viewer*", 9, "viewer", False),
    ("verl.quickstart*", 9, "quickstart", False),
    # F1 and F7 inside the trainer's folder
    ("verl.trainer.ppo.utils", 1, "config", False),
    ("verl.trainer.ppo.reward", 7, "reward", False),
    ("verl.trainer.ppo.metric_utils", 7, "metrics", False),
    ("verl.trainer.ppo.metric_aggregator", 7, "metrics", False),
    ("verl.trainer.ppo.validation_metrics", 7, "metrics", False),
    # F8: loops
    ("verl.trainer*", 8, "loops", False),
    ("verl.experimental.fully_async_policy*", 8, "loops", False),
    ("verl.experimental.one_step_off_policy*", 8, "loops", False),
    ("verl.experimental.separation*", 8, "loops", False),
    # F7: experience
    ("verl.experimental.agent_loop*", 7, "agent_loop", False),
    ("verl.experimental.reward_loop*", 7, "reward", False),
    ("verl.experimental.dataset*", 7, "dataset", False),
    ("verl.experimental", 0, "root", False),
    ("verl.utils.rollout_skip", 7, "agent_loop", False),
    ("verl.utils.reward_score*", 7, "reward_score", False),
    ("verl.utils.dataset*", 7, "dataset", False),
    ("verl.tools*", 7, "tools", False),
    ("verl.interactions*", 7, "interactions", False),
    ("verl.tracking*", 7, "tracking", False),
    # F6: meeting rooms
    ("verl.checkpoint_engine.manager", 6, "weight_publishing", False),
    ("verl.checkpoint_engine.worker", 6, "weight_publishing", False),
    ("verl.workers.engine_workers", 6, "workers", False),
    ("verl.workers.engine_settings", 6, "workers", False),
    ("verl.workers.utils*", 6, "workers", False),
    # F5: rollout
    ("verl.workers.rollout*", 5, "rollout", False),
    # F4: engine, controller, models
    ("verl.workers.engine*", 4, "engine", False),
    ("verl.workers.sharding_manager*", 2, "distributed", False),
    ("verl.workers", 0, "root", False),
    ("verl.single_controller*", 4, "single_controller", False),
    ("verl.models*", 4, "models", False),
    ("verl.utils.checkpoint*", 4, "engine", False),
    ("verl.utils.fsdp_utils", 4, "engine", False),
    ("verl.utils.model", 4, "models", False),
    ("verl.utils.tokenizer", 4, "tokenizer", False),
    ("verl.utils.chat_template", 4, "tokenizer", False),
    ("verl.utils.ray_utils", 4, "ray_utils", False),
    # F3: bytes
    ("verl.transport*", 3, "transport", False),
    ("verl.checkpoint_engine*", 3, "checkpoint_engine", False),
    # F2: machine
    ("verl.platform*", 2, "platform", False),
    ("verl.utils.profiler*", 2, "profiler", False),
    ("verl.utils.trace", 2, "profiler", False),
    ("verl.utils.rollout_trace", 2, "profiler", False),
    ("verl.utils.distributed", 2, "distributed", False),
    ("verl.utils.memory_utils", 2, "distributed", False),
    ("verl.utils.net_utils", 2, "distributed", False),
    ("verl.utils.tensor_collectives", 2, "distributed", False),
    ("verl.utils.ulysses", 2, "distributed", False),
    # F1: configuration
    ("verl.config*", 1, "config", False),
    # F0: pure
    ("verl.protocol*", 0, "protocol", False),
    ("verl.algorithms*", 0, "algorithms", False),
    ("verl.utils.tensordict_utils", 0, "protocol", False),
    ("verl.utils.groupwise", 0, "algorithms", False),
    ("verl.utils.token_tensors", 0, "algorithms", False),
    ("verl.utils*", 0, "root", False),
    ("verl.errors", 0, "root", False),
    ("verl.waits", 0, "root", False),
    ("verl.registry", 0, "root", False),
    ("verl.base_config", 0, "root", False),
    ("verl.launch_info", 0, "root", False),
    ("verl.compat", 0, "root", False),
    ("verl", 0, "root", False),
)

# Neighbours of one floor that may meet: importer → imported. `root` of floor 0 is everybody's.
NEIGHBOURS = {
    ("engine", "models"),
    ("engine", "tokenizer"),
    ("models", "tokenizer"),
    ("single_controller", "ray_utils"),
    ("checkpoint_engine", "transport"),
    ("protocol", "root"),
    ("algorithms", "root"),
    ("algorithms", "protocol"),
    ("platform", "distributed"),
    ("distributed", "platform"),
    ("profiler", "distributed"),
    ("profiler", "platform"),
    ("weight_publishing", "workers"),
    ("agent_loop", "tools"),
    ("agent_loop", "interactions"),
    ("agent_loop", "reward"),
    ("agent_loop", "dataset"),
    ("reward", "reward_score"),
    ("tools", "reward_score"),
    ("interactions", "reward_score"),
    ("reward", "agent_loop"),
    ("dataset", "tools"),
    ("metrics", "reward"),
    ("mains", "front_door"),
    ("doctor", "front_door"),
    ("quickstart", "front_door"),
    ("quickstart", "mains"),
    ("simulator", "front_door"),
}

# Third parties that a floor or a room may not import at all.
FORBIDDEN_BELOW_F4 = ("ray", "transformers", "vllm", "hydra")
FORBIDDEN_IN_ROOM = {"engine": ("ray", "vllm"), "models": ("ray", "vllm")}

# Modules whose `__getattr__` may import a higher room, so that an old path goes on answering; a model's section answers
# for what lies in the model's files.
OLD_HOMES = (
    "verl",
    "verl.checkpoint_engine",
    "verl.checkpoint_engine.base",
    "verl.config.model",
    "verl.experimental.agent_loop.agent_loop",
    "verl.protocol",
    "verl.utils",
)

# Imports inside a function that keep a light process light; the floors bind them too.
LATE = {
    ("verl.experimental.reward_loop.reward_loop", "compute_rm_score"): "scoring one sample loads no torch",
    ("verl.utils.dataset.rl_dataset", "_read_files_and_tokenize"): "most runs read their rows without `datasets`",
    ("verl.experimental.reward_loop.sample", "to_data"): "scoring one sample loads no torch",
    ("verl.experimental.reward_loop.tokenizer", "load"): "most reward workers never need a tokenizer",
    ("verl.tools.utils.tool_registry", "initialize_mcp_tool"): "the MCP packages are optional",
}


def place(module: str) -> Place | None:
    """The place of a module, or null for a module without a floor."""
    for pattern, floor, room, facade in TABLE:
        if _matches(module, pattern):
            return Place(floor, room, facade)
    return None


def _matches(module: str, pattern: str) -> bool:
    if pattern.endswith("_*"):
        return fnmatchcase(module, pattern)
    if pattern.endswith("*"):
        package = pattern.removesuffix("*")
        return module == package or module.startswith(package + ".")
    return module == pattern
