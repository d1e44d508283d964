# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Images from a parquet file through loader, prompt, trajectory, reward and engine's request; refused in training."""

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loop_parts import make_config, make_row
from omegaconf import OmegaConf
from PIL import Image
from scripted_client import ScriptedClient
from vision_processor import PLACEHOLDERS, SIDE, picture, qwen_style, save_llava_style

from verl.errors import DataError, UnsupportedError, VerlError
from verl.experimental.agent_loop import AgentLoopWorker
from verl.experimental.agent_loop.postprocess import assemble
from verl.experimental.agent_loop.scoring import RewardClient
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.steps import for_workers
from verl.utils.dataset import RLHFDataset
from verl.utils.dataset.rl_dataset import collate_fn, create_rl_dataset
from verl.utils.tokenizer import hf_processor, hf_tokenizer
from verl.workers.rollout.vllm_rollout import exchange, vllm_symbols

COLORS = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return {"score": float(solution_str == ground_truth), "length": len(solution_str)}
"""


class SeeingClient(ScriptedClient):
    """Keeps the media of each request too."""

    async def generate(self, request_id: str, *, image_data: Any = None, video_data: Any = None, **rest: Any) -> Any:
        self.media = [*getattr(self, "media", []), (image_data, video_data)]
        return await super().generate(request_id, **rest)


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llava_style(tmp_path_factory.mktemp("llava"))


def data_file(path: Path, *rows: tuple[str, list[Any] | None]) -> str:
    table = [
        {
            "data_source": "sums",
            "prompt": [{"role": "user", "content": text}],
            "images": images,
            "reward_model": {"style": "rule", "ground_truth": "3"},
            "extra_info": {"index": index},
        }
        for index, (text, images) in enumerate(rows)
    ]
    pq.write_table(pa.Table.from_pylist(table), path)
    return str(path)


def load(path: str, model: Path, **config: Any) -> RLHFDataset:
    options = OmegaConf.create({"max_prompt_length": 16, "truncation": "error"} | config)
    return RLHFDataset(path, hf_tokenizer(str(model)), options, hf_processor(str(model)))


def prompt_of(row: dict[str, Any], model: Path, client: SeeingClient, n: int = 2, **config: Any) -> Any:
    worker = AgentLoopWorker(make_config(model, **config), llm_client=client)
    return asyncio.run(worker.generate_group(row, "u", n))[1]


def test_rows_with_images_reach_the_engine_as_pixels_and_placeholders(llava: Path, tmp_path: Path) -> None:
    path = data_file(tmp_path / "a.parquet", ("<image>1+2=", [picture()]), ("1+2=", None), ("1<image>", [picture()]))
    dataset = load(path, llava)
    rows = collate_fn([dataset[index] for index in range(3)])
    batch = DataProto.from_single_dict(rows)
    row = {key: column[0] for key, column in batch.non_tensor_batch.items()}
    client = SeeingClient()
    trajectories = prompt_of(row, llava, client)
    placeholder = dataset.tokenizer.convert_tokens_to_ids("<image>")
    for trajectory, (images, videos) in zip(trajectories, client.media, strict=True):
        assert trajectory.prompt_ids.tolist() == [placeholder] * PLACEHOLDERS + dataset.tokenizer.encode("1+2=")
        (image,) = trajectory.multi_modal_data["images"]
        assert images[0].size == image.size == (SIDE, SIDE) and image.getpixel((0, 0)) == (255, 0, 0)
        assert videos is None and "videos" not in trajectory.multi_modal_data
    text = {key: column[1] for key, column in batch.non_tensor_batch.items()}
    client = SeeingClient()
    assert all(item.multi_modal_data is None for item in prompt_of(text, llava, client))


def test_a_prompt_is_as_long_for_the_filter_as_for_the_rollout(llava: Path, tmp_path: Path) -> None:
    # Characters and placeholders: 16, 17 and 4 tokens.
    rows = [("<image>" + "1" * 12, [picture()]), ("<image>" + "1" * 13, [picture()]), ("1+2=", [])]
    dataset = load(data_file(tmp_path / "a.parquet", *rows), llava, filter_overlong_prompts=True)
    assert [dataset[index]["extra_info"]["index"] for index in range(len(dataset))] == [0, 2]
    for index, (row, length) in enumerate(zip(dataset.dataframe, (16, 4), strict=True)):
        sent = prompt_of(dataset[index], llava, SeeingClient(), n=1)[0].prompt_ids
        assert dataset.prompt_length(row, index) == len(sent) == length


@pytest.mark.parametrize("truncation", ["left", "right", "middle", "error"])
def test_an_image_is_never_cut_in_two(llava: Path, tmp_path: Path, truncation: str) -> None:
    dataset = load(data_file(tmp_path / "a.parquet", ("<image>" + "1" * 13, [picture()])), llava)
    with pytest.raises(DataError, match=r"row with index 0.*17 tokens.*at most 16"):
        prompt_of(dataset[0], llava, SeeingClient(), **{"data.truncation": truncation})


def test_a_text_model_refuses_images_instead_of_writing_them_out(tiny_model_dir: Path, tmp_path: Path) -> None:
    path = data_file(tmp_path / "a.parquet", ("<image>1+2=", [picture()]))
    dataset = load(path, tiny_model_dir)
    with pytest.raises(DataError, match=r"need a processor, and this model has none.*a model that sees"):
        prompt_of(dataset[0], tiny_model_dir, SeeingClient())
    with pytest.raises(DataError, match="need a processor"):
        load(path, tiny_model_dir, filter_overlong_prompts=True)


def test_images_are_scored_and_validated_on_but_not_trained_on(llava: Path, tmp_path: Path) -> None:
    path = data_file(tmp_path / "a.parquet", ("<image>1+2=", [picture("blue")]), ("1+2=", None))
    dataset = load(path, llava)
    groups = [prompt_of(dataset[index], llava, SeeingClient(turns=[[5]])) for index in range(2)]
    batch = assemble(groups, pad_token_id=0, prompt_length=16, response_length=12, temperature=1.0)
    media = batch.non_tensor_batch["multi_modal_data"]
    assert media[0]["images"][0].getpixel((0, 0)) == (0, 0, 255) and list(media[2:]) == [None, None]
    with pytest.raises(UnsupportedError, match=r"trajectory of u.*training on images.*text prompts"):
        for_workers(batch)
    assert len(for_workers(batch.select_idxs([2, 3]))) == 2

    scorer = tmp_path / "colors.py"
    scorer.write_text(COLORS)

    async def score() -> list[dict[str, Any]]:
        worker, client = RewardLoopWorker(make_config(llava, scorer)), RewardClient([], dataset.tokenizer)
        await worker.ready()
        try:
            return await worker.score_many([client.fields_of(trajectory) for trajectory in groups[0]])
        finally:
            await worker.pool.close()

    assert [answer["reward_score"] for answer in asyncio.run(score())] == [1.0, 1.0]


@pytest.mark.parametrize(("images", "refused"), [([picture()], True), ([], False), (None, False)])
def test_training_rows_with_images_are_refused_at_the_start(
    llava: Path, tmp_path: Path, images: Any, refused: bool
) -> None:
    text = "<image>1" if images else "1"
    path = data_file(tmp_path / "a.parquet", ("1", None if images is None else []), (text, images))
    config = OmegaConf.create({"max_prompt_length": 16})
    arguments = path, config, hf_tokenizer(str(llava)), hf_processor(str(llava))
    assert len(create_rl_dataset(*arguments, is_train=False)) == 2
    if not refused:
        assert len(create_rl_dataset(*arguments)) == 2
        return
    with pytest.raises(UnsupportedError, match=r"column images of .*training on images or videos"):
        create_rl_dataset(*arguments)


def test_vllm_gets_one_placeholder_for_each_image() -> None:
    processor, vllm = qwen_style(), vllm_symbols.load()
    images = [Image.new("RGB", (16, 16), color) for color in ("red", "blue")]
    text = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "1+2="}]}],
        tokenize=False,
    )
    wide = processor(text=[text], images=images)["input_ids"][0].tolist()
    start, end, pad = processor.tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"])
    assert wide[: PLACEHOLDERS + 2] == [start, *[pad] * PLACEHOLDERS, end]
    narrow = exchange.narrow_media(wide, processor)
    assert narrow == [start, pad, end] * 2 + processor.tokenizer.encode("1+2=")
    request = exchange.to_prompt(narrow, images, None, vllm)
    assert request["prompt_token_ids"] == narrow and request["multi_modal_data"] == {"image": images}


def test_processors_whose_placeholders_cannot_be_told_apart_are_refused(llava: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"Qwen2-VL.*got 'CLIPImageProcessorPil'.*text prompts"):
        exchange.narrow_media([1], hf_processor(str(llava)))
    with pytest.raises(UnsupportedError, match="got 'no processor'"):
        exchange.narrow_media([1], None)


@pytest.mark.skipif(find_spec("qwen_vl_utils") is not None, reason="a reader of videos is installed")
def test_a_video_without_a_reader_of_videos_says_what_to_install(llava: Path) -> None:
    content = [{"type": "video", "video": "/films/a.mp4"}, {"type": "text", "text": "1"}]
    row = make_row("", "3", raw_prompt=[{"role": "user", "content": content}])
    with pytest.raises(VerlError, match="videos needs the package 'qwen_vl_utils'"):
        prompt_of(row, llava, SeeingClient())
