#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# NOT RUN ON HARDWARE: no AMD GPU was available where this was written. What it calls is tested without one.
#
# Qwen2.5-7B by DAPO on one node of MI300X: FSDP2 on four devices, vLLM on four; 140 optimizer steps, new weights after
# every second (70 weight updates, at least 60 asked for); killed by SIGKILL at version 20 and started again; the curves
# compared with a stored run.
#   MODEL=/models/Qwen2.5-7B TRAIN=… TEST=… OUT=<empty directory> bash tests/special_gpu/mi300x_acceptance.sh [key=value …]
# REFERENCE is the stored run (default beside this script); RECORD=FILE makes one and needs no REFERENCE.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
export PYTHON=$python
steps=140
every=2
mini=32
options=(--out "$OUT" --updates 60 --kill-at 20)
if [ -n "${RECORD:-}" ]; then
    options+=(--record "$RECORD")
else
    options+=(--reference "${REFERENCE:-$here/qwen2.5-7b_dapo_mi300x.json}")
fi
[ -z "${RESULTS:-}" ] || options+=(--results "$RESULTS")
exec "$python" "$here/acceptance.py" "${options[@]}" -- bash "$here/../../examples/dapo_4_4.sh" \
    actor_rollout_ref.actor.strategy=fsdp2 \
    actor_rollout_ref.actor.ppo_mini_batch_size="$mini" \
    actor_rollout_ref.actor.clip_ratio_low=0.2 \
    actor_rollout_ref.actor.loss_agg_mode=token-mean \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    reward.reward_manager.name=dapo \
    async_training.trigger_parameter_sync_step="$every" \
    async_training.staleness_threshold=0.5 \
    rollout.total_rollout_steps=$((steps * mini)) \
    trainer.total_epochs=100 \
    'trainer.logger=[console]' \
    trainer.save_freq=5 \
    trainer.val_before_train=false \
    trainer.test_freq=-1 \
    +actor_rollout_ref.rollout.engine_kwargs.vllm.disable_custom_all_reduce=true \
    "$@"
