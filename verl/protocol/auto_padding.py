# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whether a batch that does not divide over the ranks may be padded on dispatch."""

import os

_TRUE = frozenset({"1", "true", "yes", "on"})


class _Switch(type):
    _override: bool | None = None

    @property
    def auto_padding(cls) -> bool:
        """`VERL_AUTO_PADDING`, unless set here for this process."""
        if cls._override is not None:
            return cls._override
        return os.environ.get("VERL_AUTO_PADDING", "").strip().lower() in _TRUE

    @auto_padding.setter
    def auto_padding(cls, enabled: bool) -> None:
        cls._override = bool(enabled)


class DataProtoConfig(metaclass=_Switch):
    """Process-wide switch: `DataProtoConfig.auto_padding = True`, or per batch by `from_dict(auto_padding=True)`."""

    auto_padding_key = "_verl_auto_padding"
