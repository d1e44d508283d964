#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# One kind of run on a node with accelerators, killed on the way, started again, and judged by acceptance.py:
#   MODEL=… TRAIN=… TEST=… OUT=<empty directory> bash tests/special_gpu/run.sh KIND [key=value …]
# KIND: fully_async_1, fully_async_8, lora_8 (asynchronous, 1 shared device or 4 + 4), colocated_8 (FSDP2 and vLLM in turns).
# UPDATES (60), KILL_AT (20), RESULTS (a file that gets a line), REFERENCE and RECORD (curves) may be set.
set -euo pipefail
kind=$1
shift
python=${PYTHON:-python3}
updates=${UPDATES:-60}
mini=64
common=(
    actor_rollout_ref.model.path="$MODEL" data.train_files="$TRAIN" data.val_files="$TEST"
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 algorithm.adv_estimator=grpo
    actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.ppo_mini_batch_size="$mini"
    actor_rollout_ref.actor.use_dynamic_bsz=true data.max_response_length=1024
    'trainer.logger=[console]' trainer.save_freq=5 trainer.val_before_train=false trainer.test_freq=-1 trainer.default_local_dir="$OUT"
    # vLLM's own all-reduce conflicts with expandable segments on ROCm; elsewhere NCCL takes its place as well.
    +actor_rollout_ref.rollout.engine_kwargs.vllm.disable_custom_all_reduce=true
)
asynchronous=(
    data.train_batch_size=0 actor_rollout_ref.hybrid_engine=false
    async_training.trigger_parameter_sync_step=1 rollout.total_rollout_steps=$((updates * mini))
)
halves=(trainer.n_gpus_per_node=4 rollout.n_gpus_per_node=4 actor_rollout_ref.rollout.tensor_model_parallel_size=2)
main=verl.experimental.fully_async_policy.fully_async_main
case $kind in
    fully_async_1)
        keys=("${asynchronous[@]}" trainer.n_gpus_per_node=1 rollout.n_gpus_per_node=1 async_training.device_share=0.5
            actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.gpu_memory_utilization=0.3
            actor_rollout_ref.rollout.checkpoint_engine.backend=shm)
        ;;
    fully_async_8) keys=("${asynchronous[@]}" "${halves[@]}") ;;
    lora_8)
        keys=("${asynchronous[@]}" "${halves[@]}" actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.lora_alpha=32
            actor_rollout_ref.model.target_modules=all-linear actor_rollout_ref.actor.optim.lr=1e-5)
        ;;
    colocated_8)
        main=verl.trainer.main_ppo
        keys=(data.train_batch_size="$mini" trainer.n_gpus_per_node=8 trainer.total_training_steps="$updates"
            trainer.total_epochs=1000 actor_rollout_ref.rollout.tensor_model_parallel_size=2
            actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true actor_rollout_ref.rollout.gpu_memory_utilization=0.5)
        ;;
    *)
        printf 'run.sh: unknown kind %s; known: fully_async_1 fully_async_8 lora_8 colocated_8\n' "$kind" >&2
        exit 2
        ;;
esac
options=(--out "$OUT" --updates "$updates" --kill-at "${KILL_AT:-20}")
[ -z "${RESULTS:-}" ] || options+=(--results "$RESULTS")
[ -z "${REFERENCE:-}" ] || options+=(--reference "$REFERENCE")
[ -z "${RECORD:-}" ] || options+=(--record "$RECORD")
exec "$python" "$(dirname "$0")/acceptance.py" "${options[@]}" -- "$python" -m "$main" "${common[@]}" "${keys[@]}" "$@"
