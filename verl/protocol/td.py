# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""tensordict without torch's compiler: everything in verl takes `TensorDict` from here.

tensordict marks a few of its functions for torch.compile while it is imported, and marking loads all of
torch._dynamo: 4 s of CPU and 100 MB in each process, more than torch itself. We compile functions of tensors, never
of TensorDicts, so the marks are left out unless the compiler is loaded already.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def _unmarked() -> Iterator[None]:
    def unchanged(function: Callable) -> Callable:
        return function

    marks = {name: getattr(torch.compiler, name) for name in ("allow_in_graph", "assume_constant_result")}
    for name in marks if "torch._dynamo" not in sys.modules else ():
        setattr(torch.compiler, name, unchanged)
    try:
        yield
    finally:
        for name, mark in marks.items():
            setattr(torch.compiler, name, mark)


with _unmarked():
    from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict

__all__ = ["LazyStackedTensorDict", "NonTensorData", "NonTensorStack", "TensorDict"]
