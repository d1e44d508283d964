# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Peak dense bf16 operations per second by product name, from the makers' data sheets."""

import functools
import logging

logger = logging.getLogger(__name__)

_TERA = 1e12

PEAK_FLOPS: dict[str, float] = {
    # AMD Instinct
    "MI355X": 2516.6 * _TERA,
    "MI350X": 2306.9 * _TERA,
    "MI325X": 1307.4 * _TERA,
    "MI300X": 1307.4 * _TERA,
    "MI300A": 980.6 * _TERA,
    "MI250X": 383.0 * _TERA,
    "MI210": 181.0 * _TERA,
    # NVIDIA; without sparsity
    "GB200": 2500 * _TERA,
    "B200": 2250 * _TERA,
    "GH200": 989.5 * _TERA,
    "H200": 989.5 * _TERA,
    "H100 PCIe": 756 * _TERA,
    "H100": 989.5 * _TERA,
    "H800": 989.5 * _TERA,
    "H20": 148 * _TERA,
    "A100": 312 * _TERA,
    "A800": 312 * _TERA,
    "L40S": 362.05 * _TERA,
    "L40": 181.05 * _TERA,
    "L20": 119.5 * _TERA,
    "A40": 149.7 * _TERA,
    "RTX 4090": 165.2 * _TERA,
    # Huawei Ascend
    "910B": 354 * _TERA,
    # A nominal figure, so that the metric exists on a laptop; it says nothing about one.
    "CPU": 448e9,
}


@functools.cache
def peak_flops(device_name: str) -> float | None:
    """The entry whose key occurs in `device_name`, the longest first; null and one warning for an unknown product."""
    name = device_name.lower()
    for key in sorted(PEAK_FLOPS, key=len, reverse=True):
        if key.lower() in name:
            return PEAK_FLOPS[key]
    logger.warning("peak FLOPs of %r are not known: no MFU is reported", device_name)
    return None
