#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# The same on a Ray cluster: TRAIN_NODES nodes train, ROLLOUT_NODES generate, eight devices each. Run it on one node of
# a cluster that stands (`ray start --head`, then `ray start --address=…` on the others); OUT is on a shared file system.
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
    actor_rollout_ref.rollout.tensor_model_parallel_size=4 \
    data.max_response_length=8192 \
    algorithm.adv_estimator=grpo \
    rollout.total_rollout_steps=204800 \
    trainer.nnodes="${TRAIN_NODES:-2}" \
    rollout.nnodes="${ROLLOUT_NODES:-2}" \
    trainer.default_local_dir="${OUT:?a directory that all nodes see}" \
    "$@"
