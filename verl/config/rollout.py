# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Generation: sampling, engine, turns, agents, weight transfer."""

from dataclasses import dataclass, field
from typing import Any

from verl.config.checks import at_least, between, one_of, refuse, refuse_all, require
from verl.config.left_out import MtpConfig, PrometheusConfig, QATEngineConfig, ServerConfig
from verl.config.node import Node
from verl.config.profiler import ProfilerConfig
from verl.errors import ConfigError


@dataclass(frozen=True)
class SamplingConfig(Node):
    """How one answer is drawn; a run validates greedily unless told otherwise."""

    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = -1
    """Candidates per token; -1: all."""
    top_p: float = 1.0
    """Probability mass of the candidates, in (0, 1]."""
    do_sample: bool = True
    """true refuses `temperature` 0; what is drawn follows the temperature alone."""
    n: int = 1
    """Answers per prompt."""

    def __post_init__(self) -> None:
        at_least(self, 0, "temperature")
        between(self, 0, 1, "top_p")
        at_least(self, 1, "n")


@dataclass(frozen=True)
class MultiTurnConfig(Node):
    """Tools and simulated users."""

    enable: bool = False
    """Use the tool agent loop by default."""
    max_assistant_turns: int | None = None
    """Turns of the policy; null: as many as fit the response length."""
    tool_config_path: str | None = None
    """YAML list of tools."""
    max_user_turns: int | None = None
    """Turns of the user or tools; null: no limit."""
    max_parallel_calls: int = 1
    """Tool calls of one turn that run at the same time."""
    max_tool_response_length: int = 256
    """Characters kept of a tool's answer."""
    tool_response_truncate_side: str = "middle"
    """left drops the beginning, right drops the end, middle keeps both ends."""
    interaction_config_path: str | None = None
    """YAML list of simulated users."""
    use_inference_chat_template: bool = False
    """Without effect: tokens go in and come out, no template is applied twice."""
    tokenization_sanity_check_mode: str = "strict"
    """Without effect, for the same reason."""
    format: str = "hermes"
    """Name in the tool-parser registry."""
    num_repeat_rollouts: int | None = None
    """Without effect; use `rollout.n`."""
    max_tokens_per_turn: int | None = None
    """Tokens of one turn of the policy; null: what `response_length` leaves."""

    def __post_init__(self) -> None:
        at_least(self, 1, "max_assistant_turns", "max_user_turns", "max_tokens_per_turn")
        at_least(self, 1, "max_parallel_calls", "max_tool_response_length")
        one_of(self, "tool_response_truncate_side", ("left", "middle", "right"))


@dataclass(frozen=True)
class CustomAsyncServerConfig(Node):
    """A server class of yours in place of vLLM's."""

    path: str | None = None
    """Python file."""
    name: str | None = None
    """Class in it."""


@dataclass(frozen=True)
class AgentLoopConfig(Node):
    """Workers that turn prompts into trajectories."""

    num_workers: int = 8
    """Worker processes, ≥ 1; each runs many trajectories on one event loop."""
    default_agent_loop: str = "single_turn_agent"
    """Agent loop of rows that name none."""
    agent_loop_config_path: str | None = None
    """YAML list of agent loops (`_target_`)."""
    custom_async_server: CustomAsyncServerConfig = field(default_factory=CustomAsyncServerConfig)
    """A server class of yours."""
    agent_loop_manager_class: str | None = None
    """Refused when set."""
    group_deadline_s: float | None = None
    """Seconds that a prompt's trajectories may take, > 0; null: four hours."""

    def __post_init__(self) -> None:
        at_least(self, 1, "num_workers")
        require(
            self.group_deadline_s is None or self.group_deadline_s > 0, "group_deadline_s", self.group_deadline_s, "> 0"
        )
        remedy = "write an agent loop (agent_loop_config_path)"
        refuse(self.agent_loop_manager_class, "agent_loop_manager_class", "another agent-loop manager", remedy)


@dataclass(frozen=True)
class SkipConfig(Node):
    """Batches from disk instead of generation, for work on the rest of a step; not in fully asynchronous training."""

    enable: bool = False
    """Write the batches of the first steps, and use those that are there."""
    dump_dir: str = "~/.verl/rollout_dump"
    """Where they lie, by experiment, batch size and lengths."""
    max_dump_step: int = 1
    """Steps that are written, the first ones, ≥ 0."""
    action: str = "cache"
    """A later step: cache generates, repeat takes the written ones in turn, repeat_last the last of them."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_dump_step")
        one_of(self, "action", ("cache", "repeat", "repeat_last"))


@dataclass(frozen=True)
class TraceConfig(Node):
    """Spans of trajectories."""

    project_name: str | None = None
    """Follows trainer.project_name."""
    experiment_name: str | None = None
    """Follows trainer.experiment_name."""
    backend: str | None = None
    """Refused when set: spans go to `default_local_dir`/trace."""
    token2text: bool = False
    """Without effect; `trainer.rollout_data_dir` holds the texts."""
    max_samples_per_step_per_worker: int | None = None
    """Without effect."""

    def __post_init__(self) -> None:
        remedy = "read default_local_dir/trace, or set trainer.rollout_data_dir"
        refuse(self.backend, "backend", "tracing to weave or mlflow", remedy)


@dataclass(frozen=True)
class CheckpointEngineConfig(Node):
    """The road of new weights from trainer to rollout."""

    backend: str | None = "naive"
    """naive (same process), nccl, hccl, gloo (collective of the platform), shm (same host), disk."""
    update_weights_bucket_megabytes: int = 2048
    """Upper bound of both transfer buffers together, MB."""
    engine_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the backend, per backend name."""
    custom_backend_module: str | None = None
    """Module that registers a backend of yours."""

    def __post_init__(self) -> None:
        at_least(self, 1, "update_weights_bucket_megabytes")


@dataclass(frozen=True)
class RolloutConfig(Node):
    """One kind of rollout server: what it samples and how it runs."""

    name: str | None = None
    """vllm; hf where vLLM cannot be installed."""
    mode: str = "async"
    """Only async."""
    nnodes: int = 0
    """Nodes of a pool of its own; 0: shares the trainer's. The async trainers fill it from `rollout.nnodes`."""
    n_gpus_per_node: int = 8
    """Devices per node of that pool."""
    temperature: float = 1.0
    """Sampling temperature, ≥ 0."""
    top_k: int = -1
    """Candidates per token; -1: all."""
    top_p: float = 1.0
    """Probability mass of the candidates, in (0, 1]."""
    do_sample: bool = True
    """false is greedy whatever the temperature."""
    n: int = 1
    """Trajectories per prompt (group size)."""
    repetition_penalty: float = 1.0
    """1: none."""
    seed: int | None = None
    """Seed of the engines; replica r takes seed + r; null: not set."""
    full_determinism: bool = False
    """Each trajectory has a seed of its own, from `seed` (else data.seed, else trainer.seed) and its prompt's uid."""
    over_sample_rate: float = 0.0
    """SGLang's; without effect on vLLM."""
    prompt_length: int = 512
    """Longest prompt, tokens; follows data.max_prompt_length."""
    response_length: int = 512
    """Longest trajectory after the prompt, tokens, tool turns included; follows data.max_response_length."""
    dtype: str = "bfloat16"
    """Precision of the rollout engine."""
    gpu_memory_utilization: float = 0.5
    """Share of device memory for the engine, in (0, 1]; without effect on CPU."""
    ignore_eos: bool = False
    """Go on after the end token."""
    enforce_eager: bool = True
    """No CUDA graphs."""
    cudagraph_capture_sizes: list[int] | None = None
    """Batch sizes that get a graph; null: the engine's choice."""
    free_cache_engine: bool = True
    """Colocated: give the KV cache back while training."""
    tensor_model_parallel_size: int = 2
    """Devices that share one model (TP)."""
    data_parallel_size: int = 1
    """Copies inside one replica (DP)."""
    expert_parallel_size: int = 1
    """Devices that share the experts."""
    pipeline_model_parallel_size: int = 1
    """Pipeline stages of one model."""
    moe_tensor_parallel_size: int = 1
    """TensorRT-LLM's; refused above 1."""
    max_num_batched_tokens: int = 8192
    """Tokens of one engine step."""
    max_model_len: int | None = None
    """Longest sequence; null: prompt_length + response_length."""
    max_num_seqs: int = 1024
    """Sequences of one engine step."""
    enable_chunked_prefill: bool = True
    """Split long prompts over engine steps."""
    enable_prefix_caching: bool = True
    """Share the cache of equal prefixes; dropped at each weight update."""
    logprobs_mode: str | None = "processed_logprobs"
    """processed_logprobs: of the distribution sampled from; raw_logprobs: before temperature."""
    scheduling_policy: str | None = "fcfs"
    """fcfs or priority."""
    load_format: str = "dummy"
    """dummy: weights come from the trainer; auto, safetensors: from `model.path`."""
    layered_summon: bool = False
    """FSDP1's; without effect."""
    log_prob_micro_batch_size: int | None = None
    """Refused: counted over all ranks; use `log_prob_micro_batch_size_per_gpu`."""
    log_prob_micro_batch_size_per_gpu: int | None = None
    """Trajectories per forward pass when old log-probs are computed, without `log_prob_use_dynamic_bsz`."""
    log_prob_use_dynamic_bsz: bool = False
    """Micro-batches by token count there; follows the actor's."""
    log_prob_max_token_len_per_gpu: int = 16384
    """Tokens in one micro-batch there; follows the actor's."""
    disable_log_stats: bool = True
    """No statistics lines from the engine."""
    multi_stage_wake_up: bool = False
    """SGLang's; without effect on vLLM."""
    engine_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments passed on to the engine, per engine name."""
    val_kwargs: SamplingConfig = field(default_factory=SamplingConfig)
    """Sampling for validation."""
    multi_turn: MultiTurnConfig = field(default_factory=MultiTurnConfig)
    """Tools and simulated users."""
    calculate_log_probs: bool = False
    """Return the log-probs of sampled tokens."""
    agent: AgentLoopConfig = field(default_factory=AgentLoopConfig)
    """Agent loops."""
    checkpoint_engine: CheckpointEngineConfig = field(default_factory=CheckpointEngineConfig)
    """The road of new weights."""
    checkpoint_manager_class: str | None = None
    """Refused when set."""
    trace: TraceConfig = field(default_factory=TraceConfig)
    """Spans of trajectories."""
    skip: SkipConfig = field(default_factory=SkipConfig)
    """Batches from disk instead of generation."""
    skip_tokenizer_init: bool = False
    """The engine loads no tokenizer: tokens go in and come out."""
    enable_rollout_routing_replay: bool = False
    """Refused when true."""
    enable_sleep_mode: bool = True
    """The engine can give back its memory."""
    limit_images: int | None = None
    """Images per prompt; null: the engine's choice."""
    profiler: ProfilerConfig | None = None
    """The profiler of this role."""
    prometheus: PrometheusConfig = field(default_factory=PrometheusConfig)
    """Scrape file, left out."""
    quantization: str | None = None
    """Refused when set."""
    quantization_config_file: str | None = None
    """Without effect."""
    mtp: MtpConfig | None = field(default_factory=MtpConfig)
    """Multi-token prediction, left out."""
    qat: QATEngineConfig | None = None
    """Quantisation-aware training, left out."""
    server: ServerConfig = field(default_factory=ServerConfig)
    """SGLang's HTTP server, left out."""
    custom: dict[str, Any] | None = None
    """Yours: passed on as it is to servers and agent loops of your own."""
    layer_name_map: dict[str, Any] = field(default_factory=dict)
    """Megatron's; refused when it names a layer."""
    sglang_engine_mode: str = "local"
    """SGLang's; refused when it is another."""

    def __post_init__(self) -> None:
        if self.mode != "async":
            raise ConfigError("only mode=async exists", where="mode", got=self.mode, remedy="remove the key")
        at_least(self, 0, "temperature", "nnodes")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "in (0, 1]")
        require(
            0 < self.gpu_memory_utilization <= 1, "gpu_memory_utilization", self.gpu_memory_utilization, "in (0, 1]"
        )
        at_least(self, 1, "n", "prompt_length", "response_length", "n_gpus_per_node", "max_model_len")
        at_least(self, 1, "tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
        at_least(self, 1, "max_num_batched_tokens", "max_num_seqs", "expert_parallel_size")
        one_of(self, "scheduling_policy", (None, "fcfs", "priority"))
        on = self.enable_rollout_routing_replay
        refuse(on, "enable_rollout_routing_replay", "router replay", "set it to false")
        remedy = "register a backend of yours (checkpoint_engine.custom_backend_module)"
        refuse(self.checkpoint_manager_class, "checkpoint_manager_class", "another checkpoint-engine manager", remedy)
        refuse_all(self, "TensorRT-LLM", "use expert_parallel_size", moe_tensor_parallel_size=1)
        refuse_all(self, "Megatron's layers", "remove it: weights have Hugging Face's names", layer_name_map={})
        refuse_all(self, "SGLang", "remove it: name=vllm", sglang_engine_mode="local")
        refuse(self.quantization, "quantization", "a quantized rollout engine", "set quantization=null, dtype=bfloat16")
        refuse(
            self.log_prob_micro_batch_size,
            "log_prob_micro_batch_size",
            "a micro-batch counted over all ranks",
            "set log_prob_micro_batch_size_per_gpu",
        )

    @property
    def replica_world_size(self) -> int:
        """Devices of one replica: TP × DP × PP."""
        return self.tensor_model_parallel_size * self.data_parallel_size * self.pipeline_model_parallel_size

    @property
    def context_length(self) -> int:
        """Longest sequence that the engine must hold, tokens."""
        return self.max_model_len or self.prompt_length + self.response_length
