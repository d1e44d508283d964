#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# Synchronous GRPO: eight devices generate, then the same eight train.
set -euo pipefail
exec "${PYTHON:-python}" -m verl.trainer.main_ppo \
    actor_rollout_ref.model.path="$MODEL" \
    data.train_files="$TRAIN" \
    data.val_files="$TEST" \
    data.train_batch_size=256 \
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.actor.use_dynamic_bsz=true \
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true \
    actor_rollout_ref.rollout.n=8 \
    algorithm.adv_estimator=grpo \
    trainer.n_gpus_per_node=8 \
    trainer.default_local_dir="${OUT:-$PWD/outputs/colocated}" \
    "$@"
