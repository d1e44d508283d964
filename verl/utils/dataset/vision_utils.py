# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Images and videos of messages, decoded for a processor."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from verl.errors import DataError
from verl.utils.import_utils import optional_import

__all__ = ["fetch_media", "process_image", "process_video"]


def process_image(image: dict[str, Any] | Image.Image | str | bytes, image_patch_size: int = 14) -> Image.Image:
    """An RGB picture from PIL, bytes, a path, or a dict with `bytes`, `path` or `image`.

    `image_patch_size` is not used for decoding: the processor rounds sizes to its own patches.
    """
    if isinstance(image, Image.Image):
        return image.convert("RGB")
    if isinstance(image, bytes):
        return Image.open(io.BytesIO(image)).convert("RGB")
    if isinstance(image, str):
        return Image.open(image.removeprefix("file://")).convert("RGB")
    if isinstance(image, Mapping):
        for key in ("bytes", "image", "path"):
            if image.get(key) is not None:
                return process_image(image[key], image_patch_size)
    raise DataError("not an image", got=type(image).__name__, expected="PIL, bytes, a path, or a dict with one of them")


def process_video(
    video: dict[str, Any],
    image_patch_size: int = 14,
    nframes: int | None = None,
    fps: float | None = None,
    fps_min_frames: int | None = None,
    fps_max_frames: int | None = None,
    return_video_sample_fps: bool = False,
    return_video_metadata: bool = False,
) -> Any:
    """Frames of a video (a dict with `video`: a path or a list of frames), sampled by `qwen_vl_utils`."""
    if nframes is not None and fps is not None:
        raise DataError("give nframes or fps, not both", got=f"nframes={nframes}, fps={fps}")
    options = {"nframes": nframes, "fps": fps, "min_frames": fps_min_frames, "max_frames": fps_max_frames}
    request = dict(video) | {key: value for key, value in options.items() if value is not None}
    return optional_import("qwen_vl_utils", needed_for="data.video_key=videos").fetch_video(
        request,
        image_patch_size=image_patch_size,
        return_video_sample_fps=return_video_sample_fps,
        return_video_metadata=return_video_metadata,
    )


def fetch_media(
    messages: Sequence[Mapping[str, Any]], image_patch_size: int = 14
) -> tuple[list[Image.Image] | None, list[Any] | None]:
    """(images, videos with metadata) of all content parts in order; None where there is none."""
    images: list[Image.Image] = []
    videos: list[Any] = []
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            if part.get("type") == "image":
                images.append(process_image(part["image"], image_patch_size))
            elif part.get("type") == "video":
                request = part["video"] if isinstance(part["video"], dict) else part
                videos.append(process_video(request, image_patch_size, return_video_metadata=True))
    return images or None, videos or None
