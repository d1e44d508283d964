# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Two keys for one truth: older names, role against engine, one seed for all. Works on the resolved plain tree."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verl.errors import ConfigError

logger = logging.getLogger(__name__)

Tree = dict[str, Any]
_ABSENT = object()


@dataclass(frozen=True)
class Alias:
    """`old` and `new` hold the same value; `default` is what both have when nobody set them."""

    old: str
    new: str
    default: Any
    warn: bool = True


def _aliases() -> Iterator[Alias]:
    for role, engine in (("actor_rollout_ref.actor", "fsdp_config"), ("critic", "fsdp")):
        yield Alias(f"{role}.optim.grad_clip", f"{role}.optim.clip_grad", None)
        yield Alias(f"{role}.grad_clip", f"{role}.optim.clip_grad", 1.0)
        yield Alias(f"{role}.optim.warmup_style", f"{role}.optim.lr_scheduler_type", None)
        yield Alias(f"{role}.{engine}.strategy", f"{role}.strategy", "fsdp", warn=False)
        yield from _role_and_engine(role, engine, "ulysses_sequence_parallel_size", 1)
    for role in ("actor_rollout_ref.actor", "actor_rollout_ref.ref"):
        yield from _role_and_engine(role, "fsdp_config", "entropy_from_logits_with_chunking", False)
        yield from _role_and_engine(role, "fsdp_config", "entropy_checkpointing", False)
    yield from _role_and_engine("actor_rollout_ref.ref", "fsdp_config", "ulysses_sequence_parallel_size", 1)
    yield Alias("actor_rollout_ref.ref.fsdp_config.strategy", "actor_rollout_ref.ref.strategy", "fsdp", warn=False)
    yield Alias("optim.warmup_style", "optim.lr_scheduler_type", None)
    yield Alias("optim.grad_clip", "optim.clip_grad", None)


def _role_and_engine(role: str, engine: str, name: str, default: Any) -> Iterator[Alias]:
    yield Alias(f"{role}.{engine}.{name}", f"{role}.{name}", default)


ALIASES = tuple(_aliases())

# trainer.seed feeds these where they still have their default.
SEEDS = {
    "data.seed": None,
    "actor_rollout_ref.actor.data_loader_seed": 42,
    "actor_rollout_ref.actor.fsdp_config.seed": 42,
    "actor_rollout_ref.ref.fsdp_config.seed": 42,
    "critic.data_loader_seed": 42,
    "critic.fsdp.seed": 42,
    "actor_rollout_ref.rollout.seed": None,
}


def apply_aliases(tree: Tree) -> None:
    """Give both keys of each pair one value; two different values of the user's are an error."""
    for alias in ALIASES:
        old, new = get(tree, alias.old), get(tree, alias.new)
        if old is _ABSENT or new is _ABSENT:
            continue
        if alias.default is None:
            _older_name(tree, alias, old)
        elif old != alias.default and new == alias.default:
            put(tree, alias.new, old)
            if alias.warn:
                logger.warning("%s is an older name; set %s=%s", alias.old, alias.new, old)
        elif old == alias.default:
            put(tree, alias.old, new)
        elif old != new:
            raise ConfigError(
                "two keys for one truth disagree",
                where=alias.old,
                got=old,
                expected=f"{new!r} as in {alias.new}",
                remedy=f"set only {alias.new}",
            )


def _older_name(tree: Tree, alias: Alias, old: Any) -> None:
    if old is not None:
        put(tree, alias.new, old)
        logger.warning("%s is an older name; set %s=%s", alias.old, alias.new, old)


def apply_seed(tree: Tree) -> None:
    """Spread `trainer.seed` over the seeds that nobody set."""
    seed = get(tree, "trainer.seed")
    if seed is _ABSENT or seed is None:
        return
    for path, default in SEEDS.items():
        section = get(tree, path.rpartition(".")[0])
        if isinstance(section, dict) and section.get(path.rpartition(".")[2], default) == default:
            put(tree, path, seed)


def get(tree: Tree, path: str) -> Any:
    """The value at a dotted path, or a mark that there is none."""
    node: Any = tree
    for part in path.split("."):
        if not isinstance(node, dict) or part not in node:
            return _ABSENT
        node = node[part]
    return node


def put(tree: Tree, path: str, value: Any) -> None:
    """Set the value at a dotted path whose section exists."""
    section, _, name = path.rpartition(".")
    node = get(tree, section)
    node[name] = value
