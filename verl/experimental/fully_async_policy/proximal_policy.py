# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Log-probs under the proximal policy in decoupled mode: the weights at the start of the published version.

Hilton et al. 2021 ("Batch size-invariance for policy optimization") separate it from the behaviour policy.
"""

from collections.abc import Callable
from typing import Any

from verl.protocol import DataProto

START_OF_VERSION = 1


class ProximalPolicy:
    """Keeps a host copy of the weights at the first local step and computes with it at the later ones."""

    def __init__(self, actor: Any, local_step: Callable[[], int]) -> None:
        self.actor = actor
        self.local_step = local_step

    def compute_log_prob(self, batch: DataProto) -> DataProto:
        """`old_log_probs` of `batch` under the weights at the start of the version; the present ones are put back."""
        step = self.local_step()
        if step == START_OF_VERSION:
            self.actor.save_model_to_cpu(START_OF_VERSION)
            return self.actor.compute_log_prob(batch)
        self.actor.save_model_to_cpu(step)
        self.actor.restore_model_from_cpu(START_OF_VERSION)
        try:
            return self.actor.compute_log_prob(batch)
        finally:
            self.actor.restore_model_from_cpu(step)
            self.actor.clear_cpu_model(step)
