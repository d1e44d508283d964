# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The critic: a backbone whose head gives one number per token."""

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from verl.errors import UnsupportedError

# Transformers' token classifiers call their head by one of these names.
_HEAD_NAMES = ("score", "classifier")


def configure_value_model(config: PretrainedConfig) -> None:
    """One output per token and no dropout before the head, whatever the checkpoint was trained for."""
    config.num_labels = 1
    config.classifier_dropout = 0.0
    config.hidden_dropout = 0.0


def value_head(model: PreTrainedModel) -> nn.Module:
    """The linear layer `H -> 1` of a token classifier."""
    for name in _HEAD_NAMES:
        head = getattr(model, name, None)
        if isinstance(head, nn.Linear):
            return head
    raise UnsupportedError(
        f"{type(model).__name__} has no value head named {' or '.join(_HEAD_NAMES)}",
        remedy="use a model family whose token classifier in transformers has a linear head",
    )
