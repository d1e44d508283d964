# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rows change ranks; run by test_sft_trainer.py on two ranks."""

import json
import sys
from pathlib import Path

import torch

from verl.trainer.sft_data import even_out, to_batch
from verl.utils.distributed import initialize_global_process_group, leave_process


def main(out: Path) -> None:
    _, rank, _ = initialize_global_process_group(timeout_second=200)
    lengths = [9, 8, 7] if rank == 0 else [1, 2, 3]
    rows = [
        {"input_ids": torch.full((n,), 10 * rank + n), "loss_mask": torch.tensor([0] + [1] * (n - 1))} for n in lengths
    ]
    batch = even_out(to_batch(rows, pad_token_id=99), pad_token_id=99)
    kept = [
        [ids[mask.bool()].tolist(), learned[mask.bool()].tolist()]
        for ids, mask, learned in zip(batch["input_ids"], batch["attention_mask"], batch["loss_mask"], strict=True)
    ]
    (out / f"rows-{rank}.json").write_text(json.dumps(kept))
    leave_process(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
