# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The smallest processors that see: transformers' own, with image processors on PIL and the tests' tokenizer."""

import io
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import BatchFeature, LlavaConfig, LlavaProcessor, ProcessorMixin
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from verl.quickstart.model import build_tokenizer

# Four patches of 4 x 4 pixels an image.
SIDE, PATCH, PLACEHOLDERS = 8, 4, 4

_TEMPLATE = (
    "{{% for message in messages %}}{{% if message.content is string %}}{{{{ message.content }}}}{{% else %}}"
    "{{% for part in message.content %}}{{% if part.type == 'image' %}}{image}{{% else %}}{{{{ part.text }}}}"
    "{{% endif %}}{{% endfor %}}{{% endif %}}{{% endfor %}}"
)


def picture(color: str = "red") -> dict[str, bytes]:
    """An image as a parquet file holds it."""
    buffer = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), color).save(buffer, "PNG")
    return {"bytes": buffer.getvalue()}


def save_llava_style(path: Path) -> Path:
    """A directory from which AutoProcessor loads a LLaVA processor; `<image>` is one of the tokenizer's."""
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        image_token="<image>",
        chat_template=_TEMPLATE.format(image="<image>"),
    )
    processor.save_pretrained(path)
    LlavaConfig().save_pretrained(path)
    return path


class QwenStyleProcessor(ProcessorMixin):
    """Qwen2-VL's image processor and marks without its video processor, which needs torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: str | None = None) -> None:
        super().__init__(image_processor, tokenizer, chat_template=chat_template)
        self.image_token_id, self.video_token_id = tokenizer.convert_tokens_to_ids(["<|image_pad|>", "<|video_pad|>"])

    def __call__(self, images: Any = None, text: Any = None, **kwargs: Any) -> BatchFeature:
        found = self.image_processor(images=images, return_tensors="pt") if images else {"image_grid_thw": []}
        counts = [int(torch.prod(grid)) // self.image_processor.merge_size**2 for grid in found["image_grid_thw"]]
        (line,) = text
        head, *tails = line.split("<|image_pad|>")
        line = head + "".join("<|image_pad|>" * n + tail for n, tail in zip(counts, tails, strict=True))
        return BatchFeature({**self.tokenizer([line], return_tensors="pt"), **found})


def qwen_style() -> QwenStyleProcessor:
    """Four placeholders an image between its two marks."""
    tokenizer = build_tokenizer()
    marks = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    side = SIDE * PATCH
    images = Qwen2VLImageProcessorPil(
        patch_size=PATCH * 2, merge_size=2, temporal_patch_size=2, min_pixels=side**2, max_pixels=side**2
    )
    template = _TEMPLATE.format(image="<|vision_start|><|image_pad|><|vision_end|>")
    return QwenStyleProcessor(images, tokenizer, template)
