# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights inside a rollout worker: plain modules, and a real vLLM engine with tied and untied embeddings.

In fp32 an engine's greedy answer equals Hugging Face's on the same weights, so that is what answers are compared with;
the prefix cache is warm each time.
"""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from verl.errors import TransportError
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender
from verl.workers.rollout.vllm_rollout.weight_loading import load_into_module, missing_parts

PEERS = Path(__file__).parents[3] / "transport" / "peers.py"
PROMPT = [3, 4, 5, 6, 7, 8, 9, 10] * 5


# Plain modules


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3))
        self.register_buffer("bias_corr", torch.zeros(4))


def test_buffers_are_filled_in_place() -> None:
    module = Router()
    pointers = module.w.data_ptr(), module.bias_corr.data_ptr()
    load_into_module(module, [("w", torch.ones(3)), ("bias_corr", torch.arange(4.0))])
    assert module.bias_corr.tolist() == [0, 1, 2, 3] and module.w.tolist() == [1, 1, 1]
    assert (module.w.data_ptr(), module.bias_corr.data_ptr()) == pointers


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ({"w": torch.ones(3), "extra": torch.ones(1)}, "extra: the model has no such tensor"),
        ({"bias_corr": torch.ones(4)}, "parameters of the model were not sent.*w"),
        ({"w": torch.ones(4)}, r"w: the shapes differ.*\(4,\).*\(3,\)"),
    ],
)
def test_names_and_shapes_that_do_not_match_are_reported(weights: dict[str, torch.Tensor], match: str) -> None:
    with pytest.raises(TransportError, match=match):
        load_into_module(Router(), weights.items())


def test_tied_parameters_are_wanted_once() -> None:
    module = nn.ModuleDict({"embed": nn.Embedding(5, 2), "head": nn.Linear(2, 5, bias=False)})
    module["head"].weight = module["embed"].weight
    load_into_module(module, [("embed.weight", torch.ones(5, 2))])
    load_into_module(module, [("head.weight", torch.full((5, 2), 2.0))])
    assert module["embed"].weight.eq(2).all()


def test_a_fused_layer_needs_all_its_parts() -> None:
    packed = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
    names = {f"layers.0.attn.{part}.weight" for part in ("q_proj", "k_proj", "v_proj")}
    missing_parts(names | {"layers.0.norm.weight"}, packed)
    with pytest.raises(TransportError, match=r"layers\.0\.attn\.k_proj\.weight"):
        missing_parts(names - {"layers.0.attn.k_proj.weight"}, packed)


# A real engine


def greedy(model: Any) -> list[int]:
    """Hugging Face's answer to PROMPT."""
    output = model.generate(
        input_ids=torch.tensor([PROMPT]),
        attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
        max_new_tokens=32,
        min_new_tokens=32,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return output[0, len(PROMPT) :].tolist()


class Engine:
    """AsyncLLM with our worker extension, its own event loop, and the model's seeds."""

    def __init__(self, directory: Path, tied: bool, seed: int = 0, **options: Any) -> None:
        from transformers import Qwen2Config
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self.config = Qwen2Config(
            vocab_size=101,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            tie_word_embeddings=tied,
        )
        self.runner = asyncio.Runner()
        self._answers: dict[int, list[int]] = {}
        self._count = 0
        self.dtype = getattr(torch, options.get("dtype", "float32"))
        self.model(seed).to(self.dtype).save_pretrained(directory)
        arguments = AsyncEngineArgs(
            model=str(directory),
            skip_tokenizer_init=True,
            max_model_len=256,
            enforce_eager=True,
            worker_extension_cls="verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension",
            disable_log_stats=True,
            kv_cache_memory_bytes=64 << 20,
            **{"dtype": "float32", "distributed_executor_backend": "uni", **options},
        )

        async def start() -> Any:
            return AsyncLLM.from_vllm_config(arguments.create_engine_config(), disable_log_stats=True)

        self.llm = self.run(start())

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)

    def model(self, seed: int) -> Any:
        from transformers import Qwen2ForCausalLM

        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(self.config).float().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(4.0)
                else:
                    parameter.add_(torch.randn_like(parameter) * 0.05)
        return model

    def weights(self, seed: int) -> dict[str, torch.Tensor]:
        return {name: parameter.detach().to(self.dtype) for name, parameter in self.model(seed).named_parameters()}

    def expected(self, seed: int) -> list[int]:
        if seed not in self._answers:
            self._answers[seed] = greedy(self.model(seed))
        return self._answers[seed]

    def answer(self, **options: Any) -> list[int]:
        return self.run(self._answer(options))

    async def _answer(self, options: dict[str, Any]) -> list[int]:
        from vllm import SamplingParams

        self._count += 1
        params = SamplingParams(max_tokens=32, temperature=0, ignore_eos=True, detokenize=False)
        prompt, request_id = {"prompt_token_ids": PROMPT}, str(self._count)
        async for output in self.llm.generate(prompt, params, request_id=request_id, **options):
            final = output
        return list(final.outputs[0].token_ids)

    def rpc(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.llm.collective_rpc(method, timeout=60, args=args, kwargs=kwargs))[0]

    def begin(self, version: int, **kwargs: Any) -> str:
        return self.rpc("verl_begin_weights", version, deadline_s=30, **kwargs)["handle"]

    def send(self, version: int, weights: Any) -> Any:
        handle = self.begin(version)
        return self.run(BucketedWeightSender(handle, 1, version=version, deadline_s=30).async_send_weights(weights))

    def apply(self, version: int) -> dict[str, Any]:
        async def paused() -> Any:
            await self.llm.pause_generation(mode="abort")
            try:
                return await self.llm.collective_rpc("verl_apply_weights", timeout=60, args=(version,))
            finally:
                await self.llm.reset_prefix_cache()
                await self.llm.resume_generation()

        return self.run(paused())[0]

    def update(self, version: int, seed: int) -> None:
        self.send(version, self.weights(seed).items())
        self.apply(version)

    @property
    def state(self) -> dict[str, Any]:
        return self.rpc("verl_weight_state")

    def shutdown(self) -> None:
        self.llm.shutdown()
        self.runner.close()
        gc.collect()


@pytest.fixture(scope="module", params=["untied", "tied"])
def engine(request: pytest.FixtureRequest, job_env: Path, tmp_path_factory: Any) -> Iterator[Engine]:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    engine = Engine(tmp_path_factory.mktemp("model"), tied=request.param == "tied")
    yield engine
    engine.shutdown()


@pytest.fixture(scope="module")
def peers() -> Iterator[Callable[..., int]]:
    process = subprocess.Popen([sys.executable, PEERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(**job: Any) -> int:
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    yield start
    process.stdin.close()
    process.wait(timeout=20)


def test_updates_change_the_answers_at_apply_and_not_before(engine: Engine) -> None:
    assert engine.answer() == engine.expected(0)
    for version, seed in ((1, 1), (2, 2)):
        before = engine.answer()
        stats = engine.send(version, engine.weights(seed).items())
        assert engine.answer() == before, "staged weights touch nothing"
        assert engine.state["staged_version"] == version
        applied = engine.apply(version)
        assert engine.answer() == engine.expected(seed)
        assert applied["digest"] == stats.digest and applied["bytes"] == stats.bytes
        assert engine.state == {
            "version": version,
            "stale": False,
            "staged_version": None,
            "digest": stats.digest,
            "receiving": False,
            "error": None,
        }


def test_the_digests_of_what_serves_can_be_asked_for(engine: Engine) -> None:
    import xxhash

    engine.update(3, seed=3)
    weights = engine.weights(3)
    expected = {name: xxhash.xxh3_64_hexdigest(tensor.numpy().tobytes()) for name, tensor in weights.items()}
    assert engine.rpc("verl_weight_digests") == expected
    name = "model.norm.weight"
    assert engine.rpc("verl_weight_digests", [name]) == {name: expected[name]}


def wait_for_the_end(engine: Engine) -> str:
    end = time.monotonic() + 20
    while engine.state["receiving"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    return engine.state["error"]


@pytest.mark.parametrize("die_at", [0, 3, 5], ids=["at begin", "mid-bucket", "before commit"])
def test_a_sender_killed_during_the_transfer_leaves_the_old_version_serving(
    engine: Engine, peers: Callable[..., int], tmp_path: Path, die_at: int
) -> None:
    engine.update(1, seed=1)
    handle = engine.begin(4)
    job = {"role": "send", "handle": handle, "version": 4, "count": 6, "numel": 90_000, "fill": 1.0}
    pid = peers(**job, die_at=die_at, inode=str(tmp_path / "inode"))
    assert f"pid {pid}" in wait_for_the_end(engine)
    with pytest.raises(Exception, match=f"pid {pid}"):
        engine.apply(4)
    assert engine.answer() == engine.expected(1)
    assert engine.state["version"] == 1 and not engine.state["stale"]
    engine.update(4, seed=2)
    assert engine.answer() == engine.expected(2), "the same version pushed again, without a restart"


def test_a_sender_killed_between_commit_and_apply_does_not_matter(
    engine: Engine, tmp_path: Path, job_env: Path
) -> None:
    engine.update(1, seed=1)
    file = tmp_path / "w.pt"
    torch.save(engine.weights(2), file)
    handle = engine.begin(5)
    code = (
        "import asyncio, os, torch; from verl.transport.sender import BucketedWeightSender; "
        f"sender = BucketedWeightSender({handle!r}, 1, version=5, deadline_s=30); "
        f"asyncio.run(sender.async_send_weights(torch.load({str(file)!r}).items())); "
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    engine.apply(5)
    assert engine.answer() == engine.expected(2)


@pytest.mark.parametrize("spoil", ["shape", "missing", "unknown", "part of a fused layer"])
def test_an_apply_that_fails_half_way_is_stale_until_a_whole_version_is_in(engine: Engine, spoil: str) -> None:
    engine.update(1, seed=1)
    weights = engine.weights(2)
    last = "model.norm.weight"
    if spoil == "shape":
        weights["model.layers.1.mlp.down_proj.weight"] = torch.ones(3, 3)
    elif spoil == "missing":
        del weights[last]
    elif spoil == "unknown":
        weights["model.layers.1.nobody.weight"] = torch.ones(1)
    else:
        del weights["model.layers.1.self_attn.k_proj.weight"]
    engine.send(6, weights.items())
    with pytest.raises(Exception, match=r"shape|size|nobody|not sent|k_proj"):
        engine.apply(6)
    state = engine.state
    assert state["version"] == 1
    if spoil == "part of a fused layer":
        assert not state["stale"] and engine.answer() == engine.expected(1), "seen before a weight was touched"
    else:
        assert state["stale"]
    engine.update(6, seed=2)
    assert not engine.state["stale"] and engine.answer() == engine.expected(2)


def test_an_aborted_transfer_and_a_newer_one_drop_what_was_staged(engine: Engine) -> None:
    engine.update(1, seed=1)
    engine.send(7, engine.weights(2).items())
    engine.rpc("verl_abort_weights", 7, "the manager changed its mind")
    assert engine.state["staged_version"] is None
    with pytest.raises(Exception, match="not begun here"):
        engine.apply(7)
    engine.send(8, engine.weights(2).items())
    engine.begin(9)
    with pytest.raises(Exception, match="not begun here"):
        engine.apply(8)
    assert engine.answer() == engine.expected(1)
    engine.update(9, seed=2)
    assert engine.answer() == engine.expected(2)


def test_weights_that_do_not_fit_beside_the_engine_go_straight_in(engine: Engine) -> None:
    engine.update(1, seed=1)
    begun = engine.run(
        engine.llm.collective_rpc("verl_begin_weights", args=(10,), kwargs={"deadline_s": 30, "stage": False})
    )[0]
    assert begun["stages"] is False

    async def both() -> Any:
        await engine.llm.pause_generation(mode="abort")
        applying = asyncio.create_task(engine.llm.collective_rpc("verl_apply_weights", args=(10,)))
        sender = BucketedWeightSender(begun["handle"], 1, version=10, deadline_s=30)
        stats = await sender.async_send_weights(engine.weights(2).items())
        (applied,) = await applying
        await engine.llm.reset_prefix_cache()
        await engine.llm.resume_generation()
        return stats, applied

    stats, applied = engine.run(both())
    assert applied["digest"] == stats.digest and engine.answer() == engine.expected(2)


def test_the_call_that_recipes_know_receives_and_applies(engine: Engine) -> None:
    engine.update(1, seed=1)
    handle = engine.rpc("_get_zmq_handle")

    async def both() -> None:
        await engine.llm.pause_generation(mode="abort")
        applying = asyncio.create_task(engine.llm.collective_rpc("update_weights_from_ipc", kwargs={"use_shm": True}))
        await BucketedWeightSender(handle, 1, use_shm=True, deadline_s=30).async_send_weights(engine.weights(2).items())
        await applying
        await engine.llm.reset_prefix_cache()
        await engine.llm.resume_generation()

    engine.run(both())
    assert engine.answer() == engine.expected(2)


# Engines of their own


@pytest.fixture
def start(job_env: Path, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    running: list[Engine] = []

    def begin(**options: Any) -> Engine:
        for engine in running:
            engine.shutdown()
        running[:] = [Engine(tmp_path / f"model{len(list(tmp_path.iterdir()))}", **options)]
        return running[0]

    yield begin
    for engine in running:
        engine.shutdown()


@pytest.mark.long
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_in_bf16_an_updated_engine_answers_as_one_started_from_the_saved_checkpoint(
    start: Callable[..., Engine], tied: bool
) -> None:
    fresh = {seed: start(tied=tied, seed=seed, dtype="bfloat16").answer() for seed in (1, 2)}
    assert fresh[1] != fresh[2]
    engine = start(tied=tied, seed=0, dtype="bfloat16")
    assert engine.answer() not in fresh.values()
    for seed in (1, 2):
        engine.update(seed, seed)
        assert engine.answer() == fresh[seed]


@pytest.mark.long
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_each_rank_of_a_tensor_parallel_engine_takes_its_shard(
    start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, tied: bool
) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    engine = start(tied=tied, distributed_executor_backend="mp", tensor_parallel_size=2)

    async def push(version: int) -> None:
        begun = await engine.llm.collective_rpc("verl_begin_weights", args=(version,), kwargs={"deadline_s": 60})
        assert [item["local_rank"] for item in begun] == [0, 1]
        weights = engine.weights(version)
        senders = [BucketedWeightSender(item["handle"], 1, version=version, deadline_s=60) for item in begun]
        await asyncio.gather(*(sender.async_send_weights(weights.items()) for sender in senders))

    for version in (1, 2):
        engine.run(push(version))
        engine.apply(version)
        assert engine.answer() == engine.expected(version)


@pytest.mark.long
def test_adapters_are_replaced_in_place_and_base_weights_still_sync(start: Callable[..., Engine]) -> None:
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from vllm.lora.request import LoRARequest

    engine = start(tied=False, enable_lora=True, max_loras=1, max_lora_rank=8)
    loaded = {"lora_request": LoRARequest(lora_name="123", lora_int_id=123, lora_path="simon_lora_path")}
    engine.update(1, seed=1)
    assert engine.answer() == engine.expected(1)
    answers = []
    for version in (2, 3):
        base = engine.model(1)
        # After the base, which is drawn from a seed of its own.
        torch.manual_seed(version)
        targets = ["q_proj", "v_proj", "o_proj", "up_proj"]
        config = LoraConfig(r=8, lora_alpha=64, target_modules=targets, init_lora_weights=False)
        model = get_peft_model(base, config)
        plain = {k: sorted(v) if isinstance(v, set) else getattr(v, "value", v) for k, v in config.to_dict().items()}
        handle = engine.begin(version, peft_config=plain, base_sync_done=True)
        sender = BucketedWeightSender(handle, 1, version=version, deadline_s=30)
        engine.run(sender.async_send_weights(get_peft_model_state_dict(model).items()))
        engine.apply(version)
        answers.append(engine.answer(**loaded))
        assert answers[-1] == greedy(model), "the adapter's answer"
        assert engine.answer() == engine.expected(1), "without the adapter the base answers"
    assert answers[0] != answers[1]
