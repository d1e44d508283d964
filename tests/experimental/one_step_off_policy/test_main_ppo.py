# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is left out says what to use."""

import pytest

from verl.experimental.one_step_off_policy.main_ppo import main


def test_the_one_step_off_trainer_refuses_and_names_the_settings_that_do_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "async_training.staleness_threshold=1" in capsys.readouterr().err
