#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# Two FSDP2 ranks and one vLLM server of tensor-parallel size 2 on a CPU machine. Model and data: run `make quickstart`
# once, then MODEL=~/.verl/quickstart/base-… TRAIN=~/.verl/quickstart/data/train.parquet TEST=…/held_out.parquet
set -euo pipefail
exec "${PYTHON:-python}" -m verl.experimental.fully_async_policy.fully_async_main --config-name=quickstart \
    actor_rollout_ref.model.path="$MODEL" \
    data.train_files="$TRAIN" \
    data.val_files="$TEST" \
    trainer.n_gpus_per_node=2 \
    rollout.n_gpus_per_node=2 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    rollout.total_rollout_steps=1280 \
    trainer.default_local_dir="${OUT:-$HOME/.verl/runs/cpu-example}" \
    "$@"
