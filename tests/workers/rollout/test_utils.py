# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""HTTP endpoints on free ports, and the small helpers of a server."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verl.errors import ConfigError, PeerLost
from verl.workers.rollout.health_app import health_app
from verl.workers.rollout.utils import (
    ensure_async_iterator,
    gather_or_cancel,
    get_max_position_embeddings,
    qwen2_5_vl_dedup_image_tokens,
    run_uvicorn,
    tail,
)


async def get(port: int, path: str) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


def test_eight_servers_at_once_have_eight_ports_and_answer() -> None:
    async def scenario() -> tuple[set[int], list[tuple[int, Any]]]:
        def facts(index: int) -> Any:
            async def health() -> dict[str, Any]:
                return {"index": index}

            return health

        started = await asyncio.gather(*(run_uvicorn(health_app(facts(i)), None, "127.0.0.1") for i in range(8)))
        answers = [await get(port, "/health") for port, _ in started]
        for _, task in started:
            task.cancel()
        await asyncio.gather(*(task for _, task in started), return_exceptions=True)
        return {port for port, _ in started}, answers

    ports, answers = asyncio.run(scenario())
    assert len(ports) == 8
    assert answers == [(200, {"index": i}) for i in range(8)]


def test_health_of_a_dead_engine_is_503_with_its_name() -> None:
    async def scenario() -> list[tuple[int, Any]]:
        async def health() -> dict[str, Any]:
            raise PeerLost("the engine of rollout server 3 has died")

        port, task = await run_uvicorn(health_app(health), None, "127.0.0.1")
        answers = [await get(port, "/health"), await get(port, "/nothing")]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return answers

    (status, body), (missing, _) = asyncio.run(scenario())
    assert status == 503
    assert "rollout server 3" in body["error"]
    assert missing == 404


def test_gather_raises_the_first_failure_itself_and_cancels_the_rest() -> None:
    cancelled = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def broken() -> None:
        raise ConfigError("broken")

    with pytest.raises(ConfigError, match="broken"):
        asyncio.run(gather_or_cancel(slow(), broken()))
    assert cancelled == [True]


@pytest.mark.parametrize("name", ["max_position_embeddings", "n_positions"])
def test_longest_sequence_is_read_from_the_text_part(name: str) -> None:
    text = SimpleNamespace(**{name: 64})
    assert get_max_position_embeddings(SimpleNamespace(get_text_config=lambda: text)) == 64


def test_a_model_without_a_limit_says_which_key_to_set() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.max_model_len"):
        get_max_position_embeddings(SimpleNamespace())


def test_any_iterable_can_be_iterated_asynchronously() -> None:
    async def numbers() -> Any:
        yield 1
        yield 2

    async def collect(iterable: Any) -> list[int]:
        return [item async for item in ensure_async_iterator(iterable)]

    assert asyncio.run(collect([1, 2])) == asyncio.run(collect(numbers())) == [1, 2]


def test_runs_of_image_tokens_become_one() -> None:
    image_processor = type("Qwen2VLImageProcessorFast", (), {})()
    processor = SimpleNamespace(image_processor=image_processor, image_token_id=9, video_token_id=8)
    assert qwen2_5_vl_dedup_image_tokens([1, 9, 9, 9, 2, 2, 8, 8], processor) == [1, 9, 2, 2, 8]
    assert qwen2_5_vl_dedup_image_tokens([9, 9], None) == [9, 9]


def test_output_of_a_process_and_of_its_children_goes_to_the_file(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "server.log"
    script = (
        "import os, subprocess, sys\n"
        "from verl.workers.rollout.utils import redirect_output\n"
        "print('before', flush=True)\n"
        f"redirect_output({str(log)!r})\n"
        "print('from python', flush=True)\n"
        "os.write(2, b'from c\\n')\n"
        "subprocess.run([sys.executable, '-c', 'print(\"from a child\")'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "before\n"
    assert done.stderr == ""
    assert sorted(log.read_text().split("\n")) == ["", "from a child", "from c", "from python"]
    assert tail(log, 1) == "from a child"
