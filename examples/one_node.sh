#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# GRPO on one node: two devices train, two generate. MODEL, TRAIN and TEST are paths.
set -euo pipefail
exec "${PYTHON:-python}" -m verl.experimental.fully_async_policy.fully_async_main \
    actor_rollout_ref.model.path="$MODEL" \
    data.train_files="$TRAIN" \
    data.val_files="$TEST" \
    data.train_batch_size=0 \
    actor_rollout_ref.hybrid_engine=false \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.actor.use_dynamic_bsz=true \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    data.max_response_length=1024 \
    algorithm.adv_estimator=grpo \
    trainer.n_gpus_per_node=2 \
    rollout.n_gpus_per_node=2 \
    rollout.total_rollout_steps=6400 \
    trainer.default_local_dir="${OUT:-$PWD/outputs/one_node}" \
    "$@"
