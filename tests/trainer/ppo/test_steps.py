# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Steps as plain functions: what each puts on the batch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from verl.algorithms.kl import FixedKLController
from verl.errors import DataError
from verl.protocol import DataProto
from verl.trainer.ppo.batch_source import pad_with_masked_rows
from verl.trainer.ppo.steps import (
    World,
    apply_kl_penalty,
    compute_advantage,
    compute_response_mask,
    for_workers,
    old_log_prob,
    run_steps,
    score_rewards,
    update_actor,
    update_critic,
)


def batch_of_two_groups() -> DataProto:
    mask_BT = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]])
    scores_BT = torch.zeros(4, 3)
    scores_BT[0, 1], scores_BT[2, 0] = 1.0, 1.0
    return DataProto.from_dict(
        tensors={
            "responses": torch.arange(12).reshape(4, 3),
            "attention_mask": torch.cat([torch.ones(4, 2, dtype=torch.long), mask_BT], dim=1),
            "response_mask": mask_BT,
            "rm_scores": scores_BT,
            "old_log_probs": torch.full((4, 3), -1.0),
            "ref_log_prob": torch.full((4, 3), -1.5),
        },
        non_tensors={
            "uid": np.array(["a", "a", "b", "b"], dtype=object),
            "reward_error": np.array([None, "boom", None, None], dtype=object),
            "raw_prompt": np.array([[{"role": "user"}]] * 4 + [None], dtype=object)[:4],
        },
    )


def test_scores_are_placed_and_reward_errors_counted() -> None:
    batch, metrics = score_rewards(batch_of_two_groups(), World(config=None, actor=None))
    assert torch.equal(batch.batch["token_level_scores"], batch.batch["rm_scores"])
    assert metrics == {"reward/num_errors": 1.0, "reward/num_timeouts": 0.0}


def test_timeouts_are_counted_apart_and_rows_that_fill_up_the_batch_not_at_all() -> None:
    batch = batch_of_two_groups()
    batch.non_tensor_batch["reward_error"][0] = "timeout: no score within 1 s"
    padded = pad_with_masked_rows(batch, multiple=16)
    _, metrics = score_rewards(padded, World(config=None, actor=None))
    assert len(padded) == 16 and metrics == {"reward/num_errors": 2.0, "reward/num_timeouts": 1.0}


def test_a_batch_without_rewards_is_an_error_that_names_what_is_missing() -> None:
    batch = batch_of_two_groups()
    batch.pop(batch_keys=["rm_scores"])
    with pytest.raises(DataError, match="rm_scores"):
        score_rewards(batch, World(config=None, actor=None))


def test_the_kl_penalty_is_taken_off_every_response_token() -> None:
    batch = batch_of_two_groups()
    batch.batch["token_level_scores"] = batch.batch["rm_scores"]
    batch, metrics = apply_kl_penalty(batch, FixedKLController(kl_coef=0.1), kl_penalty="kl")
    # k1 = old - ref = 0.5 on each response token.
    expected = batch.batch["rm_scores"] - 0.1 * 0.5 * batch.batch["response_mask"]
    torch.testing.assert_close(batch.batch["token_level_rewards"], expected)
    assert metrics["actor/reward_kl_penalty"] == pytest.approx(0.5)
    assert metrics["actor/reward_kl_penalty_coeff"] == pytest.approx(0.1)


def test_padding_rows_and_garbage_outside_the_mask_do_not_move_the_kl() -> None:
    class Seen(FixedKLController):
        def update(self, current_kl: float, n_steps: int) -> None:
            self.seen = (current_kl, n_steps)

    batch, controller = batch_of_two_groups(), Seen(kl_coef=0.1)
    batch.batch["token_level_scores"] = batch.batch["rm_scores"]
    batch.batch["response_mask"][3] = 0
    batch.batch["ref_log_prob"][batch.batch["response_mask"] == 0] = float("nan")
    batch, metrics = apply_kl_penalty(batch, controller)
    assert controller.seen == (pytest.approx(0.5), 3) and metrics["actor/reward_kl_penalty"] == pytest.approx(0.5)
    assert torch.isfinite(batch.batch["token_level_rewards"]).all()


def test_recomputed_log_probs_bring_what_the_token_baselines_read() -> None:
    half = torch.full((4, 3), 0.5)

    def recompute(batch: DataProto) -> DataProto:
        return DataProto.from_dict({"old_log_probs": half.log(), "sum_pi_squared": half})

    actor = SimpleNamespace(policy_loss={}, loss_agg_mode="token-mean")
    config = SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(actor=actor), algorithm=SimpleNamespace(rollout_correction=None)
    )
    batch, _ = old_log_prob(batch_of_two_groups(), World(config=config, actor=None, proximal_log_prob=recompute))
    assert torch.equal(batch.batch["sum_pi_squared"], half)
    batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
    advantages = compute_advantage(batch, "optimal_token_baseline", config={}).batch["advantages"]
    # At the first token both of a group have the energy 1 - 2 * 0.5 + 0.5, so the baseline is the mean return.
    torch.testing.assert_close(advantages[:, 0], torch.tensor([0.5, -0.5, 0.5, -0.5]))


def test_a_batch_of_pf_ppo_is_drawn_anew_by_its_scores() -> None:
    def drawn(config: dict, step: int = 1) -> list[int]:
        batch = batch_of_two_groups()
        batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
        batch.batch["values"] = torch.zeros(4, 3)
        batch.non_tensor_batch["row"] = np.arange(4)
        batch.meta_info["global_step"] = step
        batch = compute_advantage(batch, "gae", config=config)
        assert len(batch) == 4 and "advantages" in batch.batch
        return batch.non_tensor_batch["row"].tolist()

    assert drawn({"use_pf_ppo": False}) == drawn({}) == [0, 1, 2, 3]
    telling = {"use_pf_ppo": True, "pf_ppo": {"reweight_method": "pow", "weight_pow": 2.0}}
    # Rows 0 and 2 scored 1, the others 0; what is drawn depends on the step alone.
    assert all(set(drawn(telling, step)) <= {0, 2} for step in range(5))
    assert drawn(telling, 3) == drawn(telling, 3)
    assert len({tuple(drawn(telling, step)) for step in range(9)}) > 1
    everyone = {"use_pf_ppo": True, "pf_ppo": {"reweight_method": "max_random"}}
    assert {row for step in range(9) for row in drawn(everyone, step)} == {0, 1, 2, 3}


def test_advantages_compare_trajectories_of_one_prompt_only() -> None:
    batch = batch_of_two_groups()
    batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
    batch = compute_advantage(batch, "grpo", norm_adv_by_std_in_grpo=False)
    first_token = batch.batch["advantages"][:, 0]
    torch.testing.assert_close(first_token, torch.tensor([0.5, -0.5, 0.5, -0.5]))
    assert torch.equal(batch.batch["advantages"][batch.batch["response_mask"] == 0], torch.zeros(4))


def test_the_response_mask_is_the_tail_of_the_attention_mask() -> None:
    batch = batch_of_two_groups()
    assert torch.equal(compute_response_mask(batch), batch.batch["response_mask"])


def test_ranks_get_tensors_but_no_texts() -> None:
    batch = batch_of_two_groups()
    batch.meta_info = {"temperature": 0.7, "metrics": [{}], "timing": {}}
    sent = for_workers(batch)
    assert set(sent.non_tensor_batch) == {"uid"}
    assert sent.meta_info == {"temperature": 0.7}
    assert set(sent.batch.keys()) == set(batch.batch.keys())


def test_the_utilisation_of_an_update_is_a_performance_metric() -> None:
    def answer(prefix: str) -> SimpleNamespace:
        result = DataProto(meta_info={"metrics": {f"{prefix}loss": [1.0, 3.0], f"{prefix}mfu": [0.2, 0.4]}})
        return SimpleNamespace(update_actor=lambda batch: result, train_batch=lambda batch: result)

    batch = batch_of_two_groups()
    batch.meta_info["global_step"] = 1
    config = SimpleNamespace(trainer=SimpleNamespace(critic_warmup=0))
    world = World(config=config, actor=answer("actor/"), critic=answer(""))
    assert update_actor(batch, world)[1] == {"actor/loss": 2.0, "perf/mfu/actor": pytest.approx(0.3)}
    assert update_critic(batch, world)[1] == {"critic/loss": 2.0, "perf/mfu/critic": pytest.approx(0.3)}


def test_steps_run_in_order_and_their_metrics_and_times_add_up() -> None:
    seen = []

    def first(batch: DataProto, world: World) -> tuple[DataProto, dict]:
        seen.append("first")
        return batch, {"a": 1}

    def second(batch: DataProto, world: World) -> tuple[DataProto, dict]:
        seen.append(world.config.name)
        return batch, {"b": batch.meta_info["global_step"]}

    timing: dict[str, float] = {}
    world = World(config=SimpleNamespace(name="second"), actor=None)
    steps = (("adv", first), ("adv", second))
    batch, metrics = run_steps(batch_of_two_groups(), world, 7, timing, steps)
    assert seen == ["first", "second"]
    assert metrics == {"a": 1, "b": 7}
    assert set(timing) == {"adv"}
    assert batch.meta_info["global_token_num"] == [4, 5, 3, 4]
