# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A replica that vLLM serves. The server itself is in `vllm_server`, its placement in `rollout.placement`."""

from typing import ClassVar

from verl.platform import current_platform
from verl.workers.rollout.placement import OneNodeReplica
from verl.workers.rollout.server import RolloutServer
from verl.workers.rollout.vllm_rollout.engine_args import EngineSettings, engine_environment
from verl.workers.rollout.vllm_rollout.vllm_server import vLLMHttpServer

__all__ = ["vLLMHttpServer", "vLLMReplica"]


class vLLMReplica(OneNodeReplica):
    """One vLLM engine of tensor x pipeline parallel size."""

    server_class: ClassVar[type[RolloutServer]] = vLLMHttpServer

    def engine_environment(self) -> dict[str, str]:
        platform = current_platform()
        settings = EngineSettings(self.replica_rank, self.mode, platform.device_type, platform.vendor)
        return engine_environment(self.config, settings)
