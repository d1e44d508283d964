# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every upstream key is in exactly one of five classes, by a table; live keys have a reader, the others none.

live · alias (another key holds the truth) · free-form (passed on as it is) · backend-bound (a backend that is left out)
· without-effect (accepted, one warning; the switch of a left-out feature is refused).
"""

import ast
import csv
import logging
import re
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pytest
from omegaconf import OmegaConf

import verl
from verl.config import RunConfig, build_config
from verl.config.aliases import ALIASES
from verl.config.backend_bound import foreign_backend
from verl.config.legacy_reward import LEGACY_ROOTS
from verl.config.without_effect import LEFT_OUT_SECTIONS, WITHOUT_EFFECT, reason

DATA = Path(__file__).parents[1] / "data"
FILES = ("ppo_trainer", "fully_async_ppo_trainer", "one_step_off_ppo_trainer")
OTHER_ENGINES = ("engine_kwargs.sglang", "engine_kwargs.trtllm")
OLDER = {alias.old for alias in ALIASES} | {"rollout.n"}


def upstream_keys() -> set[str]:
    with (DATA / "config_keys.tsv").open(encoding="utf-8") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {key for config, key, _, _ in rows if config in FILES and not key.endswith("_target_")}


def key_class(path: str) -> str:
    if path in OLDER or path.partition(".")[0] in LEGACY_ROOTS:
        return "alias"
    if foreign_backend(path) or path.endswith(OTHER_ENGINES):
        return "backend-bound"
    if reason(path) is not None:
        return "without-effect"
    return "free-form" if _is_free_form(path) else "live"


def _is_free_form(path: str) -> bool:
    kind: Any = RunConfig
    for part in path.split("."):
        kind = _section(get_type_hints(kind).get(part))
        if get_origin(kind) is dict:
            return True
        if not hasattr(kind, "__dataclass_fields__"):
            return False
    return False


def _section(hint: Any) -> Any:
    """The class inside `Class | None`."""
    args = [arg for arg in getattr(hint, "__args__", ()) if arg is not type(None)]
    return hint if get_origin(hint) is dict or not args else args[0]


def table() -> dict[str, str]:
    rows = (DATA / "key_classes.tsv").read_text(encoding="utf-8").splitlines()
    return dict(row.split("\t") for row in rows)


def test_the_class_of_every_upstream_key_is_a_decision_on_record() -> None:
    """tests/data/key_classes.tsv is that record: a key that changes its class changes it there, on purpose."""
    assert {key: key_class(key) for key in upstream_keys()} == table()


def test_a_live_key_has_a_reader() -> None:
    root = Path(verl.__file__).parent
    sources = [path for path in root.rglob("*.py") if not path.is_relative_to(root / "doctor")]
    # A declaration is no reader; `property`s and checks of the configuration itself are.
    text = "\n".join(re.sub(r"^    \w+: .*$", "", path.read_text("utf-8"), flags=re.MULTILINE) for path in sources)
    unread = [
        key
        for key, kind in table().items()
        if kind == "live" and not re.search(rf"(\.{key.rpartition('.')[2]}\b|[\"']{key.rpartition('.')[2]}[\"'])", text)
    ]
    assert unread == []


def test_what_a_field_says_agrees_with_the_table() -> None:
    """A field that calls itself without effect is in the table of such keys, at every place where it occurs."""
    silent = []
    for path, said in _documented(RunConfig):
        if said.startswith("Without effect") and reason(path) is None:
            silent.append(path)
    assert silent == []


def _documented(cls: type, prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for name, hint in get_type_hints(cls).items():
        path, kind = f"{prefix}{name}", _section(hint)
        if name in cls.__dataclass_fields__:
            found.append((path, _documentation(cls)[name]))
            found += _documented(kind, f"{path}.") if hasattr(kind, "__dataclass_fields__") else []
    return found


def _documentation(cls: type) -> dict[str, str]:
    said: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        module = getattr(base, "__module__", "")
        if not module.startswith("verl.config"):
            continue
        file = Path(verl.__file__).parents[1] / (module.replace(".", "/") + ".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                for here, after in zip(node.body, node.body[1:], strict=False):
                    if isinstance(here, ast.AnnAssign) and isinstance(after, ast.Expr):
                        said[ast.unparse(here.target)] = ast.literal_eval(after.value)
    return said


def test_every_pattern_of_the_table_means_a_key() -> None:
    keys = upstream_keys()
    unused = [
        pattern
        for pattern in (*WITHOUT_EFFECT, *LEFT_OUT_SECTIONS)
        if not any(re.fullmatch(pattern.replace(".", r"\.").replace("*", ".*") + r"(\..*)?", key) for key in keys)
    ]
    assert unused in ([], ["algorithm.filter_groups"])


def test_a_key_without_effect_is_warned_of_once_and_only_if_somebody_set_it(
    minimal: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="verl"):
        build_config(minimal)
        assert caplog.text == ""
        build_config(OmegaConf.merge(minimal, {"trainer": {"device": "npu"}, "data": {"return_raw_chat": False}}))
    assert len(caplog.records) == 1
    assert "trainer.device (the platform is detected" in caplog.text and "data.return_raw_chat" in caplog.text
