# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A model directory with Python files of its own, as models outside transformers come."""

import json
import shutil
from pathlib import Path

CONFIGURATION = """
from transformers import Qwen2Config


class OwnConfig(Qwen2Config):
    model_type = "own_qwen"
"""
MODELING = """
from transformers import Qwen2ForCausalLM

from .configuration_own import OwnConfig


class OwnForCausalLM(Qwen2ForCausalLM):
    config_class = OwnConfig
"""
AUTO_MAP = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}


def save_own_code_model(source: Path, target: Path) -> Path:
    """A copy of the Qwen2 model in `source` whose classes only its own files know; returns `target`."""
    shutil.copytree(source, target)
    (target / "configuration_own.py").write_text(CONFIGURATION)
    (target / "modeling_own.py").write_text(MODELING)
    config = json.loads((target / "config.json").read_text())
    config |= {"model_type": "own_qwen", "architectures": ["OwnForCausalLM"], "auto_map": AUTO_MAP}
    (target / "config.json").write_text(json.dumps(config))
    return target
