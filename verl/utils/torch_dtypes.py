# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Names of number formats in configurations, and the torch dtypes they mean."""

import torch

from verl.errors import ConfigError

HALF_LIST = [16, "16", "fp16", "float16", torch.float16]
FLOAT_LIST = [32, "32", "fp32", "float32", torch.float32]
BFLOAT_LIST = ["bf16", "bfloat16", torch.bfloat16]


class PrecisionType:
    """Public names kept for recipes; `to_dtype` is the only place that reads a precision from a configuration."""

    HALF = "16"
    FLOAT = "32"
    FULL = "64"
    BFLOAT = "bf16"
    MIXED = "mixed"

    @classmethod
    def supported_types(cls) -> list[str]:
        """The names that stand for a precision."""
        return [cls.HALF, cls.FLOAT, cls.FULL, cls.BFLOAT, cls.MIXED]

    @classmethod
    def supported_type(cls, precision: str | int) -> bool:
        """Whether `precision` is one of `supported_types`."""
        return str(precision) in cls.supported_types()

    @staticmethod
    def is_fp16(precision: object) -> bool:
        return precision in HALF_LIST

    @staticmethod
    def is_fp32(precision: object) -> bool:
        return precision in FLOAT_LIST

    @staticmethod
    def is_bf16(precision: object) -> bool:
        return precision in BFLOAT_LIST

    @staticmethod
    def to_dtype(precision: object) -> torch.dtype:
        """The dtype for `bf16`, `float32`, `"16"` …; anything else is a `ConfigError`."""
        for names, dtype in ((HALF_LIST, torch.float16), (FLOAT_LIST, torch.float32), (BFLOAT_LIST, torch.bfloat16)):
            if precision in names:
                return dtype
        raise ConfigError("unknown precision", got=precision, expected="one of fp32, bf16, fp16")

    @staticmethod
    def to_str(precision: torch.dtype) -> str:
        """Short name of a dtype: `fp16`, `fp32` or `bf16`."""
        names = {torch.float16: "fp16", torch.float32: "fp32", torch.bfloat16: "bf16"}
        if precision not in names:
            raise ConfigError("no short name for this dtype", got=precision, expected=f"one of {list(names)}")
        return names[precision]
