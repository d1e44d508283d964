# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From the numbers of a step to the loggers, the status line and the rollout dump."""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from verl.algorithms.advantages import AdvantageEstimator
from verl.protocol import DataProto
from verl.tracking import Tracking
from verl.tracking.rollout_dump import dump_generations
from verl.trainer.ppo.batch_source import without_padding
from verl.trainer.ppo.metric_utils import (
    compute_data_metrics,
    compute_gdpo_metrics,
    compute_throughout_metrics,
    compute_timing_metrics,
    compute_variance_proxy_metrics,
    scores_of,
)
from verl.trainer.ppo.steps import Metrics

logger = logging.getLogger(__name__)


class StepRecorder:
    """Collects metrics of local steps and logs one record per published version.

    Parameters
    ----------
    aggregator : folds the steps between two publications; needs `add_step_metrics`, `get_aggregated_metrics`, `reset`.
    num_devices : devices that the throughput is divided by.
    """

    def __init__(
        self,
        config: Any,
        tracking: Tracking,
        aggregator: Any,
        *,
        num_devices: int,
        use_critic: bool,
        tokenizer: Any = None,
    ) -> None:
        self.config = config
        self.tracking = tracking
        self.aggregator = aggregator
        self.num_devices = num_devices
        self.use_critic = use_critic
        self.tokenizer = tokenizer
        self.latest: dict[str, float] = {}

    def step(self, step: int, batch: DataProto, metrics: Metrics, timing_raw: dict[str, float]) -> None:
        """Add one local step; rows that only fill up the batch count nowhere."""
        batch = without_padding(batch)
        record = {"training/global_step": step, "training/epoch": metrics.get("training/epoch", 0)}
        record |= metrics
        record |= compute_data_metrics(batch=batch, use_critic=self.use_critic)
        algorithm = self.config.algorithm
        if algorithm.adv_estimator == AdvantageEstimator.GDPO:
            record |= compute_gdpo_metrics(batch, algorithm.get("gdpo_reward_keys") or ())
        record |= compute_timing_metrics(batch=batch, timing_raw=timing_raw)
        record |= compute_throughout_metrics(batch=batch, timing_raw=timing_raw, n_gpus=self.num_devices)
        record |= compute_variance_proxy_metrics(batch=batch, gradient_norm=metrics.get("actor/grad_norm"))
        groups = len(set(batch.non_tensor_batch["uid"].tolist())) if "uid" in batch.non_tensor_batch else len(batch)
        self.aggregator.add_step_metrics(record, sample_count=groups)
        self.latest |= {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
        directory = self.config.trainer.get("rollout_data_dir")
        if directory:
            dump_batch(batch, directory, step, self.tokenizer)

    def publish(self, version: int, metrics: Metrics) -> None:
        """Log everything since the last publication, and `metrics` with it, at `version`."""
        record = self.aggregator.get_aggregated_metrics() | metrics
        self.aggregator.reset()
        if not record:
            return
        record["fully_async/count/current_param_version"] = version
        self.latest |= {
            name: float(value) for name, value in record.items() if isinstance(value, int | float | np.number)
        }
        self.tracking.log(data=record, step=version)


def dump_batch(batch: DataProto, directory: str, step: int, tokenizer: Any) -> None:
    """Write the trajectories of a training batch to `<directory>/<step>.jsonl`, those without a score included."""
    rows = without_padding(batch)
    columns = rows.non_tensor_batch
    versions_BT = rows.batch["token_versions"]
    extras = {
        key: columns[key].tolist()
        for key in ("uid", "request_id", "reward_error", "__num_turns__", *rows.meta_info.get("reward_extra_keys", []))
        if key in columns
    }
    extras["versions"] = [sorted({int(v) for v in row.tolist() if v >= 0}) for row in versions_BT]
    truths: Iterable[dict[str, Any] | None] = columns.get("reward_model", [{}] * len(rows))
    dump_generations(
        directory,
        step,
        inputs=tokenizer.batch_decode(rows.batch["prompts"], skip_special_tokens=True),
        outputs=tokenizer.batch_decode(rows.batch["responses"], skip_special_tokens=True),
        gts=[(item or {}).get("ground_truth") for item in truths],
        scores=scores_of(rows, "token_level_scores"),
        extras=extras,
    )
