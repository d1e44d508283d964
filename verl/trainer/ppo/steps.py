# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Everything a PPO-like trainer does with one batch, as an ordered tuple of plain functions.

A step takes (batch, world) and returns (batch, metrics). A recipe adds or swaps a step by passing another tuple.

Shapes: B trajectories, T response tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from verl.algorithms.advantages import get_adv_estimator_fn
from verl.algorithms.advantages.reweight import compute_pf_ppo_reweight_data
from verl.algorithms.aggregate import agg_loss
from verl.algorithms.kl import kl_penalty as estimate_kl
from verl.algorithms.rollout_correction import (
    apply_bypass_mode,
    compute_rollout_correction_and_add_to_batch,
)
from verl.algorithms.settings import setting
from verl.algorithms.tensor_math import masked_mean, zero_outside
from verl.errors import DataError, UnsupportedError
from verl.experimental.reward_loop.outcome import TIMEOUT
from verl.protocol import DataProto
from verl.trainer.ppo.metric_utils import rollout_mismatch_metrics
from verl.utils.dataset.rl_dataset import TEXT_ONLY
from verl.utils.metric import reduce_metrics
from verl.utils.profiler import marked_timer
from verl.utils.trace import span
from verl.workers.engine_workers import OLD_LOG_PROBS_WEIGHTS, WITH_METRICS

Metrics = dict[str, Any]
Step = Callable[[DataProto, "World"], tuple[DataProto, Metrics]]


@dataclass(frozen=True)
class World:
    """What the steps may use: the typed config, one worker group per role, the KL controller.

    `proximal_log_prob` computes log-probs under the old (proximal) policy; which weights that means is the
    trainer's business (now, or at the start of the published version).
    """

    config: Any
    actor: Any
    ref: Any = None
    critic: Any = None
    kl_controller: Any = None
    proximal_log_prob: Callable[[DataProto], DataProto] | None = None


def score_rewards(batch: DataProto, world: World) -> tuple[DataProto, Metrics]:
    """Place the scores that the reward loop attached: `token_level_scores` [B,T]."""
    if "rm_scores" not in batch.batch:
        raise DataError(
            "the batch carries no rewards",
            got=sorted(batch.batch.keys()),
            expected="rm_scores",
            remedy="score trajectories in the agent loop, or put a step that does before score_rewards",
        )
    batch.batch["token_level_scores"] = batch.batch["rm_scores"]
    errors = [error for error in batch.non_tensor_batch.get("reward_error", ()) if error is not None]
    num_timeouts = sum(error.startswith(TIMEOUT) for error in errors)
    return batch, {"reward/num_errors": float(len(errors)), "reward/num_timeouts": float(num_timeouts)}


def old_log_prob(batch: DataProto, world: World) -> tuple[DataProto, Metrics]:
    """Log-probs under the proximal policy: the rollout's own in bypass mode, else recomputed; `old_log_probs` [B,T].

    With `actor.calculate_sum_pi_squared` recomputing also gives `sum_pi_squared` [B,T].
    """
    actor = world.config.actor_rollout_ref.actor
    correction = world.config.algorithm.rollout_correction
    if correction is not None and correction.bypass_mode:
        apply_bypass_mode(batch, rollout_corr_config=correction, policy_loss_config=actor.policy_loss)
        return batch, {}
    compute = world.proximal_log_prob or world.actor.compute_log_prob
    sent = for_workers(batch)
    sent.meta_info[WITH_METRICS] = True
    result = compute(sent)
    # The update may then tell whether its weights are the very ones that gave these log-probs.
    batch.meta_info[OLD_LOG_PROBS_WEIGHTS] = result.meta_info.get(OLD_LOG_PROBS_WEIGHTS)
    metrics = reduce_metrics(result.meta_info.pop("metrics", {}))
    if "entropys" in result.batch:
        entropy_BT: Any = result.batch.pop("entropys")
        metrics["actor/entropy"] = agg_loss(entropy_BT, batch.batch["response_mask"], actor.loss_agg_mode).item()
    for key in ("old_log_probs", "sum_pi_squared"):
        if key in result.batch:
            batch.batch[key] = result.batch[key]
    return batch, metrics


def ref_log_prob(batch: DataProto, world: World) -> tuple[DataProto, Metrics]:
    """Log-probs under the reference policy when a KL term needs them: `ref_log_prob` [B,T]."""
    if world.ref is None:
        return batch, {}
    return batch.union(world.ref.compute_ref_log_prob(for_workers(batch))), {}


def values(batch: DataProto, world: World) -> tuple[DataProto, Metrics]:
    """Critic values before the update: `values` [B,T]."""
    if world.critic is None:
        return batch, {}
    return batch.union(world.critic.infer_batch(for_workers(batch))), {}


def correct_rollout(batch: DataProto, world: World) -> tuple[DataProto, Metrics]:
    """Importance weights and rejection masks between rollout and proximal policy (decoupled mode); always a monitor."""
    correction = world.config.algorithm.rollout_correction
    if "rollout_log_probs" not in batch.batch:
        return batch, {}
    metrics = rollout_mismatch_metrics(batch)
    if correction is not None and not correction.bypass_mode:
        batch, corrected = compute_rollout_correction_and_add_to_batch(batch, correction)
        metrics |= corrected
    return batch, metrics


def advantages(batch: DataProto, world: World) -> tuple[DataProto, Metrics]:
    """Token-level rewards (after the KL penalty, if any), advantages and returns, each [B,T]."""
    algorithm = world.config.algorithm
    metrics: Metrics = {}
    if algorithm.use_kl_in_reward:
        batch, metrics = apply_kl_penalty(batch, world.kl_controller, kl_penalty=algorithm.kl_penalty)
    else:
        batch.batch["token_level_rewards"] = batch.batch["token_level_scores"]
    batch = compute_advantage(
        batch,
        adv_estimator=algorithm.adv_estimator,
        gamma=algorithm.gamma,
        lam=algorithm.lam,
        num_repeat=world.config.actor_rollout_ref.rollout.n,
        norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
        config=algorithm,
    )
    return batch, metrics


def update_critic(batch: DataProto, world: World) -> tuple[DataProto, Metrics]:
    """One pass of the critic over the batch."""
    if world.critic is None:
        return batch, {}
    return batch, _worker_metrics(world.critic.train_batch(for_workers(batch)), "critic/")


def update_actor(batch: DataProto, world: World) -> tuple[DataProto, Metrics]:
    """One pass of the actor over the batch; during critic warm-up the actor waits."""
    if batch.meta_info["global_step"] <= world.config.trainer.critic_warmup:
        return batch, {}
    return batch, _worker_metrics(world.actor.update_actor(for_workers(batch)), "actor/")


# Each step with the name of its timer (`timing_s/<name>`); steps of one name add up.
STEPS: tuple[tuple[str, Step], ...] = (
    ("reward", score_rewards),
    ("old_log_prob", old_log_prob),
    ("ref", ref_log_prob),
    ("values", values),
    ("adv", correct_rollout),
    ("adv", advantages),
    ("update_critic", update_critic),
    ("update_actor", update_actor),
)


def run_steps(
    batch: DataProto,
    world: World,
    step: int,
    timing_raw: dict[str, float],
    steps: tuple[tuple[str, Step], ...] = STEPS,
) -> tuple[DataProto, Metrics]:
    """Run the steps in order on one batch; times, traces and merges the metrics of each.

    Blocks on remote workers, each call with its own deadline: from a coroutine, call it in a thread.
    """
    metrics: Metrics = {}
    batch.meta_info["global_step"] = step
    batch.meta_info["global_token_num"] = batch.batch["attention_mask"].sum(-1).tolist()
    for name, function in steps:
        with marked_timer(name, timing_raw), span(function.__name__, step=step):
            batch, new = function(batch, world)
        metrics |= new
    return batch, metrics


def for_workers(batch: DataProto) -> DataProto:
    """What ranks compute with: tensors and plain facts; rows, texts and rewards of the data set stay here.

    Images and videos come as far as this, and are refused: the engines would compute on their placeholders.
    """
    media = batch.non_tensor_batch.get("multi_modal_data", ())
    seen = [str(uid) for uid, data in zip(batch.non_tensor_batch.get("uid", media), media, strict=False) if data]
    if seen:
        raise UnsupportedError(
            "training on images or videos is not part of this package",
            where=f"trajectory of {seen[0]}",
            remedy=TEXT_ONLY,
        )
    keep = [key for key in ("uid",) if key in batch.non_tensor_batch]
    meta = [key for key in batch.meta_info if key not in ("metrics", "timing", "global_token_num")]
    return batch.select(non_tensor_batch_keys=keep, meta_info_keys=meta)


def compute_response_mask(data: DataProto) -> torch.Tensor:
    """The part of the attention mask that covers responses [B,T]."""
    return data.batch["attention_mask"][:, -data.batch["responses"].size(1) :]


def apply_kl_penalty(data: DataProto, kl_ctrl: Any, kl_penalty: str = "kl") -> tuple[DataProto, Metrics]:
    """Subtract beta × KL(old ‖ reference) per token from the scores, and let the controller see the mean KL.

    Ziegler et al. 2019, eq. 2 (reward minus KL) and its adaptive controller. The mean is over trajectories of the mean
    over tokens; trajectories without a token (padding, rejected) are not counted.
    """
    mask_BT = data.batch["response_mask"]
    kl_BT = zero_outside(mask_BT, estimate_kl(data.batch["old_log_probs"], data.batch["ref_log_prob"], kl_penalty))
    beta = kl_ctrl.value
    data.batch["token_level_rewards"] = data.batch["token_level_scores"] - beta * kl_BT
    counted_B = mask_BT.bool().any(-1)
    current_kl = masked_mean(masked_mean(kl_BT, mask_BT, axis=-1), counted_B).item()
    kl_ctrl.update(current_kl=current_kl, n_steps=int(counted_B.sum()))
    return data, {"actor/reward_kl_penalty": current_kl, "actor/reward_kl_penalty_coeff": beta}


def compute_advantage(
    data: DataProto,
    adv_estimator: str,
    gamma: float = 1.0,
    lam: float = 1.0,
    num_repeat: int = 1,
    norm_adv_by_std_in_grpo: bool = True,
    config: Any = None,
) -> DataProto:
    """Call the estimator by name with the inputs its convention asks for; adds `advantages` and `returns` [B,T].

    With `config.use_pf_ppo` the rows of a GAE batch are then drawn anew by their scores.
    """
    name = getattr(adv_estimator, "value", adv_estimator)
    if "response_mask" not in data.batch:
        data.batch["response_mask"] = compute_response_mask(data)
    kwargs: dict[str, Any] = {
        "token_level_rewards": data.batch["token_level_rewards"],
        "response_mask": data.batch["response_mask"],
    }
    if name == "gae":
        kwargs |= {"values": data.batch["values"], "gamma": gamma, "lam": lam}
    elif name == "grpo":
        kwargs |= {"index": data.non_tensor_batch["uid"], "norm_adv_by_std_in_grpo": norm_adv_by_std_in_grpo}
    else:
        kwargs |= _other_estimator_inputs(name, data, config)
    data.batch["advantages"], data.batch["returns"] = get_adv_estimator_fn(name)(**kwargs)
    if name == "gae" and setting(config, "use_pf_ppo", False):
        data = compute_pf_ppo_reweight_data(
            data,
            setting(config, "pf_ppo.reweight_method", "pow"),
            setting(config, "pf_ppo.weight_pow", 2.0),
            _generator_of_step(data.meta_info),
        )
    return data


def _generator_of_step(meta_info: dict[str, Any]) -> torch.Generator | None:
    """Seeded by the step, so that a run that was resumed draws what it would have drawn; None outside of a step."""
    step = meta_info.get("global_step")
    return None if step is None else torch.Generator().manual_seed(step)


def _other_estimator_inputs(name: str, data: DataProto, config: Any) -> dict[str, Any]:
    inputs: dict[str, Any] = {"config": config}
    if "uid" in data.non_tensor_batch:
        inputs["index"] = data.non_tensor_batch["uid"]
    for key in ("reward_baselines", "sum_pi_squared", "old_log_probs", "rollout_is_weights"):
        wanted = key == "reward_baselines" or name.endswith("optimal_token_baseline")
        if wanted and key in data.batch:
            inputs[key] = data.batch[key]
    if name == "gdpo":
        inputs |= {"non_tensor_batch": data.non_tensor_batch, "batch": data.batch}
    return inputs


def _worker_metrics(result: DataProto, prefix: str) -> Metrics:
    reduced = reduce_metrics(result.meta_info["metrics"])
    out = {name if name.startswith(prefix) else prefix + name: value for name, value in reduced.items()}
    # verl reports the model FLOPs utilisation of an update under perf/.
    mfu = out.pop(f"{prefix}mfu", None)
    if mfu is not None:
        out[f"perf/mfu/{prefix.rstrip('/')}"] = mfu
    return {
        name: value.item() if isinstance(value, np.generic | torch.Tensor) else value for name, value in out.items()
    }
