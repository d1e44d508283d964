# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the doctor finds: facts, and problems with a remedy."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One fact (`problem` false) or one problem; a problem says what to do."""

    name: str
    value: str
    problem: bool = False
    remedy: str = ""

    def line(self) -> str:
        """One line of text; a problem is marked."""
        mark = "!" if self.problem else " "
        return f"{mark} {self.name}: {self.value}" + (f" → {self.remedy}" if self.remedy else "")


def fact(name: str, value: object) -> Finding:
    """Something to know."""
    return Finding(name, str(value))


def problem(name: str, value: object, remedy: str) -> Finding:
    """Something to mend before a run."""
    return Finding(name, str(value), problem=True, remedy=remedy)
