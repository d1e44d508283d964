# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a GPU build of torch: eight devices, masked as the runtimes mask them. Hardware we cannot have.

SIMULATED_BUILD chooses hip or cuda; the masks are read when this module is imported, as HIP does.
"""

import types

from torch import cuda, version

__version__ = version.__version__
Tensor = type("Tensor", (), {})
UntypedStorage = type("UntypedStorage", (), {})
uint8 = "torch.uint8"


class device:
    def __init__(self, kind: str, index: int = 0) -> None:
        self.type, self.index = kind, index


def get_device_module(kind: str) -> types.ModuleType:
    assert kind == "cuda", kind
    return cuda
