# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Public path of the tensor helpers: masked arithmetic, logits, tokens, collectives, schedules."""

from torch import Tensor

from verl.algorithms.logits import (
    calculate_sum_pi_squared_from_logits,
    entropy_from_logits,
    entropy_from_logits_with_chunking,
    gather_from_labels,
    logprobs_from_logits,
    logprobs_from_logits_naive,
)
from verl.algorithms.tensor_math import (
    clip_by_value,
    compute_grad_norm,
    masked_mean,
    masked_sum,
    masked_var,
    masked_whiten,
)
from verl.utils.lr_schedules import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_wsd_schedule_with_warmup,
)
from verl.utils.tensor_collectives import (
    allgather_dict_into_dict,
    allgather_dict_tensors,
    broadcast_dict_tensor,
    distributed_masked_mean,
    distributed_mean_max_min_std,
)
from verl.utils.token_tensors import (
    expand_as_nested,
    get_response_mask,
    get_unpad_data,
    log_probs_from_logits_all_rmpad,
    log_probs_from_logits_response,
    log_probs_from_logits_response_rmpad,
    pad_2d_list_to_length,
    pad_sequence_to_length,
    post_process_logits,
    postprocess_data,
    prepare_decoder_attention_mask,
    remove_pad_token,
    split_dict_tensor_into_batches,
    tokenize_and_postprocess_data,
)

__all__ = [
    "allgather_dict_into_dict",
    "allgather_dict_tensors",
    "broadcast_dict_tensor",
    "calculate_sum_pi_squared_from_logits",
    "clip_by_value",
    "compute_grad_norm",
    "distributed_masked_mean",
    "distributed_mean_max_min_std",
    "entropy_from_logits",
    "entropy_from_logits_with_chunking",
    "expand_as_nested",
    "gather_from_labels",
    "get_constant_schedule_with_warmup",
    "get_cosine_schedule_with_warmup",
    "get_response_mask",
    "get_unpad_data",
    "get_wsd_schedule_with_warmup",
    "log_probs_from_logits_all_rmpad",
    "log_probs_from_logits_response",
    "log_probs_from_logits_response_rmpad",
    "logprobs_from_logits",
    "logprobs_from_logits_naive",
    "logprobs_from_logits_v2",
    "masked_mean",
    "masked_sum",
    "masked_var",
    "masked_whiten",
    "pad_2d_list_to_length",
    "pad_sequence_to_length",
    "post_process_logits",
    "postprocess_data",
    "prepare_decoder_attention_mask",
    "remove_pad_token",
    "split_dict_tensor_into_batches",
    "tokenize_and_postprocess_data",
]


def logprobs_from_logits_v2(logits: Tensor, labels: Tensor) -> Tensor:
    """`logprobs_from_logits` that leaves the logits alone."""
    return logprobs_from_logits(logits, labels, inplace_backward=False)
