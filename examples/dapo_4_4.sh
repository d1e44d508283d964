#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# DAPO's clip-higher on long answers, one node: four devices train, four generate; new weights every four steps.
set -euo pipefail
exec "${PYTHON:-python}" -m verl.experimental.fully_async_policy.fully_async_main \
    actor_rollout_ref.model.path="$MODEL" \
    data.train_files="$TRAIN" \
    data.val_files="$TEST" \
    data.train_batch_size=0 \
    actor_rollout_ref.hybrid_engine=false \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.actor.use_dynamic_bsz=true \
    actor_rollout_ref.rollout.n=16 \
    data.max_response_length=8192 \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.actor.clip_ratio_high=0.28 \
    rollout.total_rollout_steps=51200 \
    trainer.n_gpus_per_node=4 \
    rollout.n_gpus_per_node=4 \
    trainer.default_local_dir="${OUT:-$PWD/outputs/dapo_4_4}" \
    "$@"
