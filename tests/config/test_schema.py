# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plain mapping → dataclass: types, unknown keys, places of errors."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from verl.config import FSDPActorConfig, HFModelConfig, RolloutConfig, SamplingConfig
from verl.config.node import Node
from verl.config.schema import Report, build
from verl.errors import ConfigError, UnsupportedError


@dataclass(frozen=True)
class Inner(Node):
    count: int = 1


@dataclass(frozen=True)
class Outer(Node):
    ratio: float = 0.5
    name: str = "a"
    on: bool = False
    limit: int | None = None
    threshold: float | str = 2.0
    files: str | list[str] = "x"
    pair: tuple[float, float] = (0.1, 0.2)
    free: dict[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("ratio", 1, 1),
        ("name", 7, "7"),
        ("limit", None, None),
        ("limit", 3.0, 3),
        ("threshold", "0.5_2.0", "0.5_2.0"),
        ("threshold", 3, 3),
        ("files", ["a", "b"], ["a", "b"]),
        ("pair", [0.9, 0.99], (0.9, 0.99)),
        ("free", {"any": {"thing": 1}}, {"any": {"thing": 1}}),
        ("free", None, {}),
        ("inner", {"count": 2}, Inner(2)),
        ("inner", None, Inner(1)),
    ],
)
def test_a_value_of_a_fitting_type_is_taken(key: str, value: Any, expected: Any) -> None:
    made = getattr(build(Outer, {key: value}), key)
    assert made == expected and type(made) is type(expected)


@pytest.mark.parametrize(
    ("key", "value"),
    [("ratio", "fast"), ("ratio", True), ("on", 1), ("limit", 1.5), ("limit", True), ("pair", [1.0]), ("inner", 3)],
)
def test_a_wrong_type_is_refused_with_its_place(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Outer, {key: value}, "section")
    assert caught.value.where == f"section.{key}"
    assert repr(value) in str(caught.value)


def test_null_where_a_value_is_needed_says_so() -> None:
    with pytest.raises(ConfigError, match=r"ratio: must be set"):
        build(Outer, {"ratio": None})


def test_an_unknown_key_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"a\.inner\.coutn: unknown key.*Did you mean count\?"):
        build(Outer, {"inner": {"coutn": 2}}, "a")


def test_kept_keys_answer_by_attribute_item_and_get() -> None:
    report = Report("keep")
    made = build(Outer, {"mine": 5, "inner": {"deep": {"x": 1}}}, report=report)
    assert (made.mine, made["mine"], made.get("mine"), made.get("other", 9)) == (5, 5, 5, 9)
    assert made.inner.deep == {"x": 1}
    assert "mine" in made and len(made) == 10
    assert report.kept == ["mine", "inner.deep"]


def test_an_attribute_that_does_not_exist_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'ratio'"):
        _ = Outer().ration


def test_a_range_error_carries_the_full_key_path() -> None:
    with pytest.raises(ConfigError, match=r"^actor_rollout_ref\.rollout\.val_kwargs\.top_p: wrong value. got 1.5"):
        build(RolloutConfig, {"val_kwargs": {"top_p": 1.5}}, "actor_rollout_ref.rollout")


def test_a_left_out_feature_is_refused_with_what_to_use() -> None:
    with pytest.raises(UnsupportedError, match=r"model\.mtp\.enable: multi-token prediction is not part"):
        build(HFModelConfig, {"mtp": {"enable": True}}, "model")


def test_keys_of_other_backends_are_passed_over() -> None:
    made = build(FSDPActorConfig, {"megatron": {"param_offload": True}, "load_weight": True}, "actor_rollout_ref.actor")
    assert made == FSDPActorConfig()


def test_target_chooses_a_subclass_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_sampling.py").write_text(
        "from dataclasses import dataclass\n"
        "from verl.config import SamplingConfig\n"
        "@dataclass(frozen=True)\nclass Mine(SamplingConfig):\n    extra: int = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made = build(SamplingConfig, {"_target_": "my_sampling.Mine", "extra": 4, "n": 2})
    assert type(made).__name__ == "Mine" and (made.extra, made.n) == (4, 2)
    assert type(build(SamplingConfig, {"_target_": "verl.workers.config.SamplingConfig"})) is SamplingConfig
    with pytest.raises(ConfigError, match="a subclass of SamplingConfig"):
        build(SamplingConfig, {"_target_": "collections.OrderedDict"}, "val_kwargs")


@pytest.mark.parametrize(("value", "modules"), [(None, []), ("m", ["m"]), (["m1", "m2"], ["m1", "m2"])])
def test_external_lib_takes_null_one_and_many(value: Any, modules: list[str]) -> None:
    assert build(HFModelConfig, {"external_lib": value}).external_libs == modules


def test_a_typed_section_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Outer().ratio = 1.0  # type: ignore[misc]
