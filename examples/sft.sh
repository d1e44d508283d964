#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# Supervised fine-tuning on conversations; GPUS ranks on this node.
set -euo pipefail
exec "${PYTHON:-python}" -m torch.distributed.run --standalone --nproc_per_node="${GPUS:-8}" -m verl.trainer.sft_trainer \
    model.path="$MODEL" \
    data.train_files="$TRAIN" \
    data.val_files="$TEST" \
    data.train_batch_size=256 \
    data.max_length=2048 \
    optim.lr=1e-5 \
    trainer.total_epochs=3 \
    trainer.test_freq=after_each_epoch \
    trainer.save_freq=after_each_epoch \
    trainer.default_local_dir="${OUT:-$PWD/outputs/sft}" \
    "$@"
