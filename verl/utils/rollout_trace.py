# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What happened inside one trajectory: calls of decorated methods, with inputs and outputs, as nested spans.

Backends: `jsonl` (the process's trace file), `mlflow`, `weave`; none until `RolloutTraceConfig.init`.
"""

import functools
import inspect
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from verl.errors import ConfigError
from verl.utils.import_utils import optional_import
from verl.utils.json_utils import to_jsonable
from verl.utils.trace import span

F = TypeVar("F", bound=Callable[..., Any])


class TraceBackend(Protocol):
    """Where spans go; `record` is filled with `output` before the block ends."""

    def span(self, name: str, record: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class _Trajectory:
    trace_id: str
    attributes: dict[str, Any]
    span_id: str | None = None


_current: ContextVar[_Trajectory | None] = ContextVar("verl_trajectory", default=None)


class RolloutTraceConfig:
    """One setting for the process, made by `init` and read by the decorators."""

    project_name: ClassVar[str | None] = None
    experiment_name: ClassVar[str | None] = None
    backend: ClassVar[str | None] = None
    client: ClassVar[TraceBackend | None] = None
    token2text: ClassVar[bool] = False
    max_samples_per_step_per_worker: ClassVar[int | None] = None

    @classmethod
    def init(
        cls,
        project_name: str,
        experiment_name: str,
        backend: str | None,
        token2text: bool = False,
        max_samples_per_step_per_worker: int | None = None,
    ) -> None:
        """Choose the backend; None switches tracing off."""
        makers: dict[str, Callable[[], TraceBackend]] = {
            "jsonl": _JsonLines,
            "mlflow": lambda: _MLflow(project_name),
            "weave": lambda: _Weave(project_name),
        }
        if backend is not None and backend not in makers:
            raise ConfigError(
                "unknown trace backend",
                where="actor_rollout_ref.rollout.trace.backend",
                got=backend,
                expected=f"null or one of {', '.join(makers)}",
            )
        cls.client = makers[backend]() if backend is not None else None
        cls.project_name, cls.experiment_name = project_name, experiment_name
        cls.backend, cls.token2text = backend, token2text
        cls.max_samples_per_step_per_worker = max_samples_per_step_per_worker

    @classmethod
    def reset(cls) -> None:
        """Tracing off."""
        cls.project_name, cls.experiment_name = None, None
        cls.backend, cls.client, cls.token2text, cls.max_samples_per_step_per_worker = None, None, False, None

    @classmethod
    def get_instance(cls) -> "type[RolloutTraceConfig]":
        """The setting of this process; it has the attributes of one object."""
        return cls

    @classmethod
    def get_backend(cls) -> str | None:
        return cls.backend

    @classmethod
    def get_client(cls) -> TraceBackend | None:
        return cls.client

    @classmethod
    def enable_token2text(cls) -> bool:
        return cls.token2text


@contextmanager
def rollout_trace_attr(
    sample_index: Any = None,
    step: int | None = None,
    rollout_n: int | None = None,
    name: str = "rollout_trace",
    validate: bool = False,
    trace: bool = True,
) -> Iterator[None]:
    """The block is one trajectory: decorated calls inside belong to it and carry these attributes."""
    client = RolloutTraceConfig.client
    if client is None or not trace:
        yield
        return
    given = {"sample_index": sample_index, "step": step, "rollout_n": rollout_n, "validate": validate}
    attributes = {key: value for key, value in given.items() if value is not None}
    trajectory = _Trajectory(uuid.uuid4().hex, attributes, uuid.uuid4().hex[:16])
    token = _current.set(trajectory)
    try:
        with client.span(name, {"trace_id": trajectory.trace_id, "span_id": trajectory.span_id, **attributes}):
            yield
    finally:
        _current.reset(token)


def rollout_trace_op(func: F) -> F:
    """Decorator for a method, coroutine or not: a call inside a traced trajectory is a span with inputs and output."""
    signature = inspect.signature(func)

    @functools.wraps(func)
    async def inner(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _call_span(func, signature, self, args, kwargs) as filled:
            result = await func(self, *args, **kwargs)
            if filled is not None:
                filled["output"] = _with_text(self, result)
            return result

    @functools.wraps(func)
    def plain(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _call_span(func, signature, self, args, kwargs) as filled:
            result = func(self, *args, **kwargs)
            if filled is not None:
                filled["output"] = _with_text(self, result)
            return result

    return inner if inspect.iscoroutinefunction(func) else plain  # type: ignore[return-value]


@contextmanager
def _call_span(
    func: Callable[..., Any], signature: inspect.Signature, owner: Any, args: Any, kwargs: Any
) -> Iterator[dict[str, Any] | None]:
    """The span of one call below the current trajectory's, to be filled; None where nothing is traced."""
    client, parent = RolloutTraceConfig.client, _current.get()
    if client is None or parent is None:
        yield None
        return
    inputs = dict(signature.bind(owner, *args, **kwargs).arguments)
    inputs.pop(next(iter(signature.parameters)), None)
    child = _Trajectory(parent.trace_id, parent.attributes, uuid.uuid4().hex[:16])
    record = {"trace_id": child.trace_id, "span_id": child.span_id, "parent_id": parent.span_id, "input": inputs}
    token = _current.set(child)
    try:
        with client.span(func.__qualname__, {**record, **parent.attributes}) as filled:
            yield filled
    finally:
        _current.reset(token)


def _with_text(owner: Any, result: Any) -> Any:
    """The result, and beside its token ids their text where that is wanted and the owner has a tokenizer."""
    plain = to_jsonable(vars(result)) if hasattr(result, "__dict__") else to_jsonable(result)
    tokenizer = getattr(owner, "tokenizer", None)
    if not RolloutTraceConfig.token2text or tokenizer is None or not isinstance(plain, dict):
        return plain
    texts = {
        key.replace("_ids", "_text"): tokenizer.decode(plain[key])
        for key in ("prompt_ids", "response_ids", "token_ids")
        if plain.get(key)
    }
    return {**plain, **texts}


class _JsonLines:
    @contextmanager
    def span(self, name: str, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with span(name, **record) as args:
            yield args


class _MLflow:
    def __init__(self, project_name: str) -> None:
        self._mlflow = optional_import("mlflow", needed_for="actor_rollout_ref.rollout.trace.backend=mlflow")
        self._mlflow.set_experiment(project_name)

    @contextmanager
    def span(self, name: str, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with self._mlflow.start_span(name=name) as mlflow_span:
            mlflow_span.set_inputs(to_jsonable(record.get("input", {})))
            mlflow_span.set_attributes({key: value for key, value in to_jsonable(record).items() if key != "input"})
            yield record
            mlflow_span.set_outputs(to_jsonable(record.get("output")))


class _Weave:
    def __init__(self, project_name: str) -> None:
        weave = optional_import("weave", needed_for="actor_rollout_ref.rollout.trace.backend=weave")
        self._client = weave.init(project_name)

    @contextmanager
    def span(self, name: str, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        plain = to_jsonable(record)
        call = self._client.create_call(op=name, inputs=plain.pop("input", {}), attributes=plain)
        try:
            yield record
        except BaseException as error:
            # A cancelled call has ended too.
            self._client.finish_call(call, exception=error)
            raise
        self._client.finish_call(call, output=to_jsonable(record.get("output")))
