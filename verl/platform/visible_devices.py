# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""HIP_, ROCR_ and CUDA_VISIBLE_DEVICES → one of them."""

from collections.abc import Mapping

from verl.errors import ConfigError

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


def one_mask(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Changes that leave CUDA_VISIBLE_DEVICES as the only mask; null removes a variable. Values stay text (UUIDs too).

    HIP and CUDA name the same mask twice, so equal values are fine. ROCR masks one layer below: devices are counted
    anew from there, so beside another mask it would mean other devices than it says.

    Raises
    ------
    ConfigError
        saying which variable to unset.
    """
    cuda, hip, rocr = environ.get(CUDA), environ.get(HIP), environ.get(ROCR)
    if rocr is not None and (hip is not None or cuda is not None):
        other = HIP if hip is not None else CUDA
        raise _contradiction(ROCR, rocr, other, environ[other], "the two masks are applied one after the other")
    if hip is not None and cuda is not None and hip != cuda:
        # Ray masks an actor by HIP_VISIBLE_DEVICES, so what disagrees is what the shell exported.
        raise _contradiction(CUDA, cuda, HIP, hip, "the two masks say different devices")
    if rocr is not None:
        return {CUDA: rocr, ROCR: None}
    if hip is not None:
        return {CUDA: hip, HIP: None}
    return {}


def ordinal(device: str, mask: str | None) -> int:
    """The number of `device` among those that `mask` shows; without a mask a device is its own number.

    Raises
    ------
    ConfigError
        where the mask hides it.
    """
    shown = None if mask is None else [entry.strip() for entry in mask.split(",")]
    if shown is None and device.isdecimal():
        return int(device)
    if shown is None or device not in shown:
        raise ConfigError(
            "the mask of this process hides the device that Ray gave it",
            got=f"device {device}, mask {mask!r}",
            remedy="start Ray with the same mask as the job, or unset the mask",
        )
    return shown.index(device)


def _contradiction(unset: str, value: str, keep: str, kept: str, why: str) -> ConfigError:
    return ConfigError(
        f"both are set, and {why}",
        where=f"{unset}, {keep}",
        got=f"{unset}={value}, {keep}={kept}",
        remedy=f"unset {unset} in the shell that starts the job (or Ray) and let {keep} name the devices",
    )
