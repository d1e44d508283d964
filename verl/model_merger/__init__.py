# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`python -m verl.model_merger`: shards of a checkpoint to a Hugging Face folder."""
