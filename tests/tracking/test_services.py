# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Trackers that are services of their own."""

import os
from pathlib import Path

import pytest

from verl.tracking import services


def test_mlflows_database_in_tmp_is_left_alone_where_it_is_another_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = tmp_path / "mlruns.db"
    monkeypatch.setattr(services, "COMMON_STORE", common)
    assert services.default_store() == f"sqlite:///{common}"
    common.touch(mode=0o600)
    assert services.default_store() == f"sqlite:///{common}"
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert services.default_store() == f"sqlite:///{tmp_path}/mlruns-{uid + 1}.db"
