# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old place where models were patched for packed input; transformers keeps packed sequences apart by itself."""

from typing import Any

from transformers import PreTrainedModel

from verl.errors import UnsupportedError
from verl.models.attention import choose_attention
from verl.platform import current_platform

__all__ = ["apply_monkey_patch"]


def apply_monkey_patch(
    model: PreTrainedModel,
    ulysses_sp_size: int = 1,
    use_remove_padding: bool = True,
    use_fused_kernels: bool = False,
    fused_kernels_backend: str | None = None,
    **others: Any,
) -> None:
    """Make sure that `model` can be called on packed rows `[1, N]` with restarting `position_ids`.

    Nothing is changed: an attention implementation that reads the borders from the positions is enough, and another
    one is a `ConfigError`. What would need a changed model is refused.
    """
    wanted = {
        f"ulysses_sp_size={ulysses_sp_size}": ulysses_sp_size > 1,
        "use_fused_kernels=True": use_fused_kernels,
        **{f"{name}={value}": bool(value) for name, value in others.items() if name.startswith("use_")},
    }
    for setting, asked in wanted.items():
        if asked:
            raise UnsupportedError(
                "models are not patched",
                where=setting,
                remedy="leave it off; a recipe's own attention can exchange heads by verl.utils.ulysses",
            )
    if use_remove_padding:
        platform = current_platform()
        choose_attention(
            model.config._attn_implementation, default=platform.attn_implementation, device_type=platform.device_type
        )
