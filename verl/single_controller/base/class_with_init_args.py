# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`ClassWithInitArgs`: a worker that is built later and elsewhere; free of torch, so that control processes use it."""

from typing import Any


class ClassWithInitArgs:
    """A class and the arguments to build it with, later and elsewhere."""

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs

    def __call__(self) -> Any:
        return self.cls(*self.args, **self.kwargs)
