# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which platform this machine is, and why."""

import os
from collections.abc import Mapping
from importlib.metadata import entry_points

from verl.errors import ConfigError
from verl.platform.base import Platform
from verl.platform.cpu import CPUPlatform
from verl.platform.cuda import CUDAPlatform
from verl.platform.facts import MachineFacts, read_facts
from verl.platform.npu import NPUPlatform
from verl.platform.rocm import ROCmPlatform
from verl.utils.import_utils import optional_import

OVERRIDE_ENV = "VERL_PLATFORM"
ENTRY_POINT_GROUP = "verl.platforms"
BUILT_IN: tuple[type[Platform], ...] = (NPUPlatform, ROCmPlatform, CUDAPlatform, CPUPlatform)


def detect(environ: Mapping[str, str] = os.environ, facts: MachineFacts | None = None) -> Platform:
    """The platform of this machine.

    `VERL_PLATFORM` decides if it is set; else third-party platforms are asked, then NPU, ROCm, CUDA, CPU.

    Raises
    ------
    ConfigError
        if `VERL_PLATFORM` names none that is known.
    """
    known = {cls.name: cls for cls in (*third_party(), *BUILT_IN)}
    wanted = environ.get(OVERRIDE_ENV)
    if wanted:
        if wanted.lower() not in known:
            raise ConfigError("unknown platform", where=OVERRIDE_ENV, got=wanted, expected="one of " + ", ".join(known))
        return known[wanted.lower()](f"{OVERRIDE_ENV}={wanted}")
    facts = _ask_torch(facts or read_facts())
    for cls in known.values():
        reason = cls.detect(facts)
        if reason is not None:
            return cls(reason)
    raise ConfigError("no platform fits this machine", got=facts, remedy=f"set {OVERRIDE_ENV}=cpu")


def third_party() -> list[type[Platform]]:
    """Platforms of other packages: classes named in the entry point group `verl.platforms`."""
    classes = []
    for point in entry_points(group=ENTRY_POINT_GROUP):
        loaded = point.load()
        if not (isinstance(loaded, type) and issubclass(loaded, Platform)):
            raise ConfigError(
                "not a subclass of verl.platform.Platform",
                where=f"entry point {point.name} in {ENTRY_POINT_GROUP}",
                got=loaded,
            )
        classes.append(loaded)
    return classes


def _ask_torch(facts: MachineFacts) -> MachineFacts:
    """Fill in devices that have no node of the usual name (WSL); torch is loaded only in this case."""
    if not (facts.cuda or facts.hip) or facts.nvidia_devices or facts.amd_devices:
        return facts
    devices = optional_import("torch", needed_for="looking for devices").cuda.device_count()
    if facts.hip:
        return MachineFacts(facts.torch_version, hip=facts.hip, amd_devices=devices)
    return MachineFacts(facts.torch_version, cuda=facts.cuda, nvidia_devices=devices)
