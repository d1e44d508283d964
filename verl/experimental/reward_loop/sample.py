# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One trajectory as a reward manager sees it, without tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verl.errors import DataError
from verl.utils.plain import to_plain


@dataclass(frozen=True)
class RewardSample:
    """The row, the texts, and the counts of one trajectory."""

    row: dict[str, Any]
    response_str: str
    response_length: int
    """Response tokens, tool and user tokens included"""
    uid: str = ""
    prompt_str: str = ""
    prompt_ids: Any = ()
    response_ids: Any = ()
    num_turns: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)
    """What the agent loop added (turn_scores, tool_rewards …)"""

    @classmethod
    def from_data(cls, data: Any, tokenizer: Any) -> "RewardSample":
        """From a `DataProto` of one row."""
        if len(data) != 1:
            raise DataError("a reward manager scores one trajectory at a time", got=f"{len(data)} rows", expected=1)
        item = data[0]
        batch, row = item.batch, dict(item.non_tensor_batch)
        num_prompt = batch["prompts"].shape[-1]
        attention = batch["attention_mask"]
        prompt_ids = batch["prompts"][attention[:num_prompt].bool()]
        response_ids = batch["responses"][attention[num_prompt:].bool()]
        extra = row.pop("tool_extra_fields", None) or {}
        return cls(
            row=row,
            uid=str(row.get("uid", "")),
            prompt_str=tokenizer.decode(prompt_ids.tolist(), skip_special_tokens=True),
            response_str=tokenizer.decode(response_ids.tolist(), skip_special_tokens=True),
            response_length=len(response_ids),
            prompt_ids=prompt_ids.numpy(),
            response_ids=response_ids.numpy(),
            num_turns=row.get("__num_turns__"),
            extra_fields=dict(extra),
        )

    def to_data(self, prompt_length: int, response_length: int, pad_token_id: int) -> Any:
        """As a `DataProto` of one row, for managers that are written against one."""
        # Here: whoever scores through `RewardSample` alone never loads torch.
        from verl.experimental.agent_loop.postprocess import assemble
        from verl.experimental.agent_loop.trajectory import Trajectory

        length = len(self.response_ids)
        trajectory = Trajectory(
            uid=self.uid,
            prompt_ids=np.asarray(self.prompt_ids, dtype=np.int32),
            response_ids=np.asarray(self.response_ids, dtype=np.int32),
            response_mask=np.ones(length, dtype=bool),
            log_probs=None,
            token_versions=np.full(length, -1, dtype=np.int32),
            num_turns=self.num_turns or 0,
            row=self.row,
        )
        data = assemble(
            [[trajectory]],
            pad_token_id=pad_token_id,
            prompt_length=max(prompt_length, len(self.prompt_ids)),
            response_length=max(response_length, length),
            temperature=1.0,
        )
        extra = np.empty(1, dtype=object)
        extra[0] = self.extra_fields
        data.non_tensor_batch["tool_extra_fields"] = extra
        return data

    @property
    def ground_truth(self) -> Any:
        """What the row expects of the answer, or None where its column has no such form."""
        truth = self.row.get("reward_model")
        return truth.get("ground_truth") if isinstance(truth, Mapping) else None

    def arguments(self, data_source_key: str = "data_source") -> dict[str, Any]:
        """What a reward function is called with."""
        truth = self.row.get("reward_model")
        if not isinstance(truth, Mapping) or "ground_truth" not in truth:
            raise self._missing("ground truth", 'a column reward_model = {"ground_truth": ...}')
        if data_source_key not in self.row:
            raise self._missing(f"column {data_source_key!r}", "data.reward_fn_key to name the data source's column")
        extra_info = dict(to_plain(self.row.get("extra_info") or {})) | dict(self.extra_fields)
        extra_info["num_turns"] = self.num_turns
        extra_info["rollout_reward_scores"] = self.row.get("reward_scores") or {}
        return {
            "data_source": self.row[data_source_key],
            "solution_str": self.response_str,
            "ground_truth": to_plain(truth["ground_truth"]),
            "extra_info": extra_info,
        }

    def _missing(self, what: str, expected: str) -> DataError:
        return DataError(
            f"the row has no {what}", where=f"trajectory of {self.uid}", got=sorted(self.row), expected=expected
        )
