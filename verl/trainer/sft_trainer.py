# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Supervised fine-tuning on the engine that reinforcement learning uses; one process a device.

torchrun --standalone --nproc_per_node=8 -m verl.trainer.sft_trainer key=value …
"""

import itertools
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from verl.config import SFTRunConfig, build_sft_config
from verl.config.front_door import run_main
from verl.config.manifest import write_manifest
from verl.config.run_lock import acquire_run_lock
from verl.errors import ConfigError, UnsupportedError
from verl.protocol import DataProto
from verl.tracking import Tracking
from verl.trainer.ppo.checkpointing import (
    TRAINER_FILE,
    checkpoint_folder,
    find_resume_folder,
    folder_version,
    prune,
    publish_folder,
)
from verl.trainer.progress import ProgressLine
from verl.trainer.sft_data import Columns, create_sft_dataset, even_out, to_batch, train_loader, validation_batches
from verl.utils.distributed import (
    all_reduce_numbers,
    destroy_global_process_group,
    initialize_global_process_group,
    leave_process,
    succeed_together,
)
from verl.utils.import_utils import import_external_libs
from verl.utils.tokenizer import load_tokenizer_and_processor
from verl.workers.engine import BaseEngine, EngineRegistry
from verl.workers.engine.flops import FlopsCounter, model_flops_utilization
from verl.workers.utils.losses import sft_loss

logger = logging.getLogger(__name__)

AFTER_EACH_EPOCH = "after_each_epoch"


class SFTTrainer:
    """One rank of a supervised run; `fit` trains to the end, or until a signal asks it to save and stop.

    `config` is typed, or a mapping of `sft_trainer_engine.yaml`.
    """

    def __init__(self, config: Any) -> None:
        self.config = config if isinstance(config, SFTRunConfig) else build_sft_config(config, unknown="keep")
        _refuse_what_is_left_out(self.config)
        _, self.rank, self.world_size = initialize_global_process_group()
        import_external_libs(self.config.model.get("external_lib"))
        self.tokenizer, self.processor = load_tokenizer_and_processor(self.config.model)
        self._load_data()
        self.engine = self._build_engine()
        self.engine.initialize()
        self.flops = FlopsCounter(self.engine.hf_config)
        self.loss_function = partial(sft_loss, self.config)
        self.global_step = 0
        self.total_tokens = 0
        self.signals: list[int] = []
        self._resume()

    def _load_data(self) -> None:
        data = self.config.data

        def dataset(files: Any, max_samples: int) -> Any:
            return create_sft_dataset(files, data, self.tokenizer, self.processor, max_samples)

        train = dataset(data.train_files, data.train_max_samples)
        self.loader = train_loader(
            train, data, rank=self.rank, world_size=self.world_size, seed=self.config.trainer.seed
        )
        self.validation = dataset(data.val_files, data.val_max_samples) if data.val_files else None
        self.steps_per_epoch = len(self.loader)
        trainer = self.config.trainer
        self.total_steps = trainer.total_training_steps or trainer.total_epochs * self.steps_per_epoch

    def _build_engine(self) -> BaseEngine:
        config = self.config
        cut = {
            "use_dynamic_bsz": config.data.use_dynamic_bsz,
            "max_token_len_per_gpu": config.data.max_token_len_per_gpu,
            "micro_batch_size_per_gpu": config.data.micro_batch_size_per_gpu,
        }
        return EngineRegistry.new(
            "language_model",
            config.engine.strategy or "fsdp",
            model_config=config.model,
            engine_config={**config.engine, **cut, **{f"infer_{key}": value for key, value in cut.items()}},
            optimizer_config={**config.optim, "total_training_steps": self.total_steps},
            checkpoint_config=config.checkpoint,
        )

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def fit(self) -> dict[str, float]:
        """Train what is left of the run; returns the metrics of the last step.

        A signal in `self.signals` ends the run after the step in progress, with a checkpoint.
        """
        metrics: dict[str, float] = {}
        # Each time its iterator is asked for, the loader gives the next epoch.
        batches = itertools.chain.from_iterable(itertools.repeat(self.loader))
        with self._recording() as record:
            for rows in itertools.islice(batches, self.total_steps - self.global_step):
                self.global_step += 1
                metrics = self._train_step(to_batch(rows, self._pad_token_id))
                stopped = self._any_rank_was_signalled()
                done = stopped or self.global_step == self.total_steps
                if self._is_due(self.config.trainer.test_freq, done) and not stopped:
                    metrics |= self.validate()
                record(metrics)
                if self._is_due(self.config.trainer.save_freq, done):
                    self.save()
                if stopped:
                    break
        return metrics

    def _train_step(self, batch: Columns) -> dict[str, float]:
        if self.config.trainer.balance_batch or self.config.data.balance_dp_token:
            batch = even_out(batch, self._pad_token_id)
        started = time.monotonic()
        with self.engine.train_mode():
            found = self.engine.train_batch(DataProto.from_dict(batch), self.loss_function)
        seconds = time.monotonic() - started
        lengths = batch["attention_mask"].sum(-1).tolist()
        # Unknown model or device: zero, as the trackers want a number every step.
        own_mfu = model_flops_utilization(self.flops, lengths, seconds) or 0.0
        tokens, mfu = all_reduce_numbers([float(sum(lengths)), own_mfu])
        self.total_tokens += int(tokens)
        metrics = {f"train/{name}": float(found[name]) for name in ("loss", "grad_norm", "lr", "skipped_steps")}
        return metrics | {
            "train/mfu": mfu / self.world_size,
            "train/global_tokens": tokens,
            "train/total_tokens(B)": self.total_tokens / 1e9,
            "train/tokens_per_second": tokens / seconds,
        }

    def validate(self) -> dict[str, float]:
        """`val/loss`: mean negative log-likelihood of the whole validation set's learned tokens; {} without a set."""
        if self.validation is None:
            return {}
        sums = torch.zeros(2, dtype=torch.float64)
        with self.engine.eval_mode():
            for batch in validation_batches(
                self.validation,
                max(1, self.config.data.train_batch_size // self.world_size),
                rank=self.rank,
                world_size=self.world_size,
                pad_token_id=self._pad_token_id,
            ):
                mask_BS = batch["loss_mask"].double()
                scores = self.engine.infer_batch(DataProto.from_dict(batch), frozenset({"log_probs"})).tensors
                nll_BS = -scores["log_probs"].double() * mask_BS
                sums += torch.stack([nll_BS.sum(), mask_BS.sum()])
        loss, tokens = all_reduce_numbers(sums.tolist())
        return {"val/loss": loss / max(1.0, tokens)}

    def _is_due(self, frequency: int | str, done: bool) -> bool:
        """Every `frequency` steps, or each epoch; at the end in any case."""
        if frequency == AFTER_EACH_EPOCH:
            return done or self.global_step % self.steps_per_epoch == 0
        return done or (int(frequency) > 0 and self.global_step % int(frequency) == 0)

    def _any_rank_was_signalled(self) -> bool:
        return bool(all_reduce_numbers([float(bool(self.signals))], op="max")[0])

    @property
    def _pad_token_id(self) -> int:
        return self.tokenizer.pad_token_id

    @contextmanager
    def _recording(self) -> Iterator[Callable[[dict[str, float]], None]]:
        """What to do with a step's metrics: trackers and the progress line on rank 0, nothing elsewhere."""
        if self.rank:
            yield lambda metrics: None
            return
        trainer = self.config.trainer
        names = (trainer.project_name, trainer.experiment_name, trainer.loggers)
        with Tracking(*names, self.config, resume_step=self.global_step or None) as tracking, ProgressLine() as line:

            def record(metrics: dict[str, float]) -> None:
                tracking.log(metrics, self.global_step)
                facts = {"step": self.global_step, "total_steps": self.total_steps}
                line.update(facts | {"tokens_per_s": metrics["train/tokens_per_second"]})

            yield record

    # ---- checkpoints ------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write `global_step_<n>` now: shards, the loader's place on each rank, the counters; then move the tracker."""
        root = Path(self.config.trainer.default_local_dir)
        draft = root / f".draft_{self.global_step}"
        self.engine.save_checkpoint(str(draft), None, self.global_step, None)

        def add_place() -> None:
            torch.save(self.loader.state_dict(), draft / f"data_{self.rank}.pt")
            if self.rank == 0:
                counters = {"optimizer_step": self.global_step, "total_tokens": self.total_tokens}
                (draft / TRAINER_FILE).write_text(json.dumps(counters, indent=1))

        def publish() -> None:
            if self.rank == 0:
                publish_folder(draft, checkpoint_folder(root, self.global_step))
                prune(root, self.config.trainer.max_ckpt_to_keep)

        succeed_together(add_place, "write the place in the data")
        succeed_together(publish, "publish the checkpoint")
        logger.info("checkpoint %s", checkpoint_folder(root, self.global_step))

    def _resume(self) -> None:
        folder = find_resume_folder(self.config.trainer)
        if folder is None:
            return
        self.engine.load_checkpoint(str(folder))
        self.global_step = folder_version(folder)
        place = folder / f"data_{self.rank}.pt"
        if place.is_file():
            self.loader.load_state_dict(torch.load(place, weights_only=True))
        counters = folder / TRAINER_FILE
        self.total_tokens = json.loads(counters.read_text())["total_tokens"] if counters.is_file() else 0
        logger.info("resumed from %s", folder)


def _refuse_what_is_left_out(config: SFTRunConfig) -> None:
    if config.trainer.default_hdfs_dir:
        raise UnsupportedError(
            "checkpoints on HDFS",
            where="trainer.default_hdfs_dir",
            remedy="mount it, and set trainer.default_local_dir to a directory there",
        )
    ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
    if "WORLD_SIZE" not in os.environ and ranks > 1:
        raise ConfigError(
            "this is one process, and the configuration asks for several",
            where="trainer.nnodes, trainer.n_gpus_per_node",
            got=ranks,
            expected=1,
            remedy=f"launch it with torchrun --nnodes={config.trainer.nnodes} "
            f"--nproc_per_node={config.trainer.n_gpus_per_node} -m verl.trainer.sft_trainer …",
        )


@contextmanager
def _noted_signals(signals: list[int]) -> Iterator[None]:
    """SIGTERM and SIGINT are noted for the loop; the second one ends the process."""

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        if len(signals) > 1:
            raise SystemExit(128 + number)

    previous = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def run_sft(config: Any) -> int:
    """Train a configuration on this rank; 0 after a whole run, 128 + signal after a stop that a signal asked for."""
    typed = config if isinstance(config, SFTRunConfig) else build_sft_config(config, unknown="keep")
    out = Path(typed.trainer.default_local_dir)
    out.mkdir(parents=True, exist_ok=True)
    leads = os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        if leads:
            stack.enter_context(acquire_run_lock(out))
            write_manifest(typed, out)
        stack.callback(destroy_global_process_group)
        trainer = SFTTrainer(typed)
        stack.enter_context(_noted_signals(trainer.signals))
        trainer.fit()
    return 128 + trainer.signals[0] if trainer.signals else 0


def main() -> None:
    """Console entry."""
    code = run_main(
        lambda config, _raw: run_sft(config),
        config_module="verl.trainer.config",
        config_name="sft_trainer_engine",
        build=build_sft_config,
    )
    leave_process(code)


if __name__ == "__main__":
    main()
