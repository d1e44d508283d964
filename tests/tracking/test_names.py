# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import logging

import pytest

from verl.tracking.names import NameCleaner, clean_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("val-core/a@4//acc (%)", "val-core/a_at_4/acc"),
        ("/leading//slashes/", "leading/slashes"),
        ("critic/score/mean", "critic/score/mean"),
        ("größe", "gr_e"),
        ("%%%", "_"),
        ("", "_"),
    ],
)
def test_names_keep_allowed_characters_and_single_slashes(name: str, expected: str) -> None:
    assert clean_name(name) == expected


def test_two_names_never_become_one_and_it_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("verl"), "propagate", True)
    cleaner = NameCleaner()
    first = cleaner.clean_all({"a@b": 1.0, "a_at_b": 2.0})
    assert first == {"a_at_b_2": 1.0, "a_at_b": 2.0}
    assert cleaner.clean_all({"a@b": 3.0}) == {"a_at_b_2": 3.0}
    assert len(caplog.records) == 1
