# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the vLLM server and the names of the worker extension."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from verl.errors import ConfigError, UnsupportedError
from verl.workers.rollout.vllm_rollout.utils import (
    SuppressSignalInThread,
    build_cli_args_from_config,
    extract_prompt_logprobs,
    get_vllm_max_lora_rank,
    monkey_patch_compute_logits,
    vLLMColocateWorkerExtension,
    vLLMOmniColocateWorkerExtension,
)


def test_cli_words_follow_the_type_of_each_value() -> None:
    config = {
        "none": None,
        "off": False,
        "eager_mode": True,
        "sizes": [1, 2],
        "nothing": [],
        "compilation_config": {"mode": 3},
        "seed": 0,
        "dtype": "bfloat16",
    }
    flags = ["--eager-mode", "--sizes", "1", "2", "--compilation-config", '{"mode": 3}']
    assert build_cli_args_from_config(config) == [*flags, "--seed", "0", "--dtype", "bfloat16"]


@pytest.mark.parametrize(("asked", "allowed"), [(1, 1), (2, 8), (8, 8), (9, 16), (257, 320), (512, 512)])
def test_the_adapter_rank_is_the_next_that_vllm_allows(asked: int, allowed: int) -> None:
    assert get_vllm_max_lora_rank(asked) == allowed


@pytest.mark.parametrize("rank", [0, -1, 513])
def test_an_impossible_adapter_rank_names_its_key(rank: int) -> None:
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model\.lora_rank"):
        get_vllm_max_lora_rank(rank)


def test_tokens_beyond_the_tokenizer_become_impossible() -> None:
    model = SimpleNamespace(compute_logits=lambda hidden: torch.zeros(2, 8))
    monkey_patch_compute_logits(model, 5)
    logits_KV = model.compute_logits(None)
    assert logits_KV[:, 5:].eq(float("-inf")).all() and logits_KV[:, :5].eq(0).all()
    other = SimpleNamespace(compute_logits=lambda hidden: None)
    monkey_patch_compute_logits(other, 5)
    assert other.compute_logits(None) is None, "ranks that have no logits return none"


def test_prompt_log_probs_keep_the_length_of_the_prompt() -> None:
    def entry(value: float, rank: int) -> SimpleNamespace:
        return SimpleNamespace(logprob=value, rank=rank)

    # vLLM lists the prompt's own token beside the likeliest two when it is not one of them.
    rows = [None, {7: entry(-0.1, 1), 9: entry(-3.0, 5), 8: entry(-2.0, 2)}, {3: entry(-0.7, 2), 2: entry(-0.6, 1)}]
    output, result = SimpleNamespace(prompt_logprobs=rows), {}
    extract_prompt_logprobs(output, 2, result)
    assert result == {
        "prompt_ids": [[0, 0], [7, 8], [2, 3]],
        "prompt_logprobs": [[0.0, 0.0], [-0.1, -2.0], [-0.6, -0.7]],
    }
    own: dict[str, list] = {}
    extract_prompt_logprobs(SimpleNamespace(prompt_logprobs=[None, {4: entry(-2.0, 9)}]), 0, own)
    assert own == {"prompt_ids": [[0], [4]], "prompt_logprobs": [[0.0], [-2.0]]}
    untouched: dict[str, list] = {}
    extract_prompt_logprobs(output, None, untouched)
    assert untouched == {}


def test_signal_handlers_can_be_asked_for_off_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    problems: list[BaseException] = []

    def install() -> None:
        try:
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        except BaseException as error:
            problems.append(error)

    with SuppressSignalInThread():
        thread = threading.Thread(target=install)
        thread.start()
        thread.join()
        assert not problems and signal.getsignal(signal.SIGUSR2) == before
    thread = threading.Thread(target=install)
    thread.start()
    thread.join()
    assert isinstance(problems[0], ValueError), "outside the block Python refuses as always"


def test_a_child_with_the_death_signal_dies_with_its_parent() -> None:
    child = (
        "import importlib.util as u, sys, time; "
        "from verl.workers.rollout.vllm_rollout.utils import set_death_signal; "
        "set_death_signal(); sys.stdout.write('ready'); sys.stdout.flush(); time.sleep(60)"
    )
    parent = (
        "import subprocess, sys; "
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE); "
        "p.stdout.read(5); sys.stdout.write(str(p.pid) + '\\n'); sys.stdout.flush(); p.wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_no_name_of_the_extension_exists_on_vllms_workers() -> None:
    cpu = pytest.importorskip("vllm.v1.worker.cpu_worker").CPUWorker
    gpu = pytest.importorskip("vllm.v1.worker.gpu_worker").Worker
    for extension in (vLLMColocateWorkerExtension, vLLMOmniColocateWorkerExtension):
        ours = [name for name in dir(extension) if not name.startswith("__")]
        assert "update_weights_from_ipc" in ours
        assert not [name for name in ours if hasattr(cpu, name) or hasattr(gpu, name)]


def test_an_adapter_for_omni_is_refused_with_what_to_do() -> None:
    extension = object.__new__(vLLMOmniColocateWorkerExtension)
    with pytest.raises(UnsupportedError, match=r"model\.lora\.merge=True"):
        extension.verl_begin_weights(1, peft_config={"r": 8})
