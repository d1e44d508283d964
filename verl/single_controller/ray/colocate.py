# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Several roles in one process: one actor holds a worker of each, `RayWorkerGroup.spawn` gives a group per role."""

import inspect
from typing import Any

import ray

from verl.errors import ConfigError
from verl.single_controller.base.class_with_init_args import ClassWithInitArgs
from verl.single_controller.base.worker import Worker
from verl.single_controller.ray.actor_class import RayClassWithInitArgs
from verl.single_controller.ray.runtime_env import merge_runtime_env


class ColocatedWorkers(Worker):
    """One worker per role, built in the order of `roles`, all of one rank."""

    def __init__(self, roles: dict[str, ClassWithInitArgs]) -> None:
        super().__init__()
        self.workers: dict[str, Any] = {}
        for role, build in roles.items():
            self.workers[role] = build()
            setattr(self.workers[role], Worker.fused_worker_attr_name, self.workers)

    def invoke_role(self, role: str, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of one role's worker."""
        return getattr(self.workers[role], method_name)(*args, **kwargs)


class AsyncColocatedWorkers(ColocatedWorkers):
    """The same for roles with coroutine methods; the actor is then an asynchronous one."""

    async def invoke_role(self, role: str, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of one role's worker and await it where it is a coroutine."""
        value = getattr(self.workers[role], method_name)(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value


class ColocatedRayClass(RayClassWithInitArgs):
    """What `create_colocated_worker_cls` returns; `role_classes` says whose methods each role has."""

    def __init__(self, cls: Any, role_classes: dict[str, type], roles: dict[str, ClassWithInitArgs]) -> None:
        super().__init__(cls, roles)
        self.role_classes = role_classes


def create_colocated_worker_cls(class_dict: dict[str, RayClassWithInitArgs]) -> ColocatedRayClass:
    """One actor class for all roles of `class_dict`; their runtime environments must agree where they overlap."""
    raw_cls = create_colocated_worker_raw_cls(class_dict)
    roles = {
        role: ClassWithInitArgs(build.worker_cls, *build.args, **build.kwargs) for role, build in class_dict.items()
    }
    role_classes = {role: build.worker_cls for role, build in class_dict.items()}
    colocated = ColocatedRayClass(ray.remote(raw_cls), role_classes, roles)
    options = _common_options(class_dict)
    if options:
        colocated.update_options(options)
    return colocated


def create_colocated_worker_cls_fused(class_dict: dict[str, RayClassWithInitArgs]) -> ColocatedRayClass:
    """Another name of `create_colocated_worker_cls`."""
    return create_colocated_worker_cls(class_dict)


def create_colocated_worker_raw_cls(class_dict: dict[str, RayClassWithInitArgs]) -> type:
    """The Python class behind `create_colocated_worker_cls`."""
    if not class_dict:
        raise ConfigError("nothing to colocate", got="an empty dictionary of roles")
    is_async = any(
        inspect.iscoroutinefunction(getattr(build.worker_cls, name, None))
        for build in class_dict.values()
        for name in dir(build.worker_cls)
    )
    return AsyncColocatedWorkers if is_async else ColocatedWorkers


def _common_options(class_dict: dict[str, RayClassWithInitArgs]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for role, build in class_dict.items():
        for key, value in build.options.items():
            if key == "runtime_env":
                options[key] = _joined_env(role, options.get(key), value)
            elif key in options and options[key] != value:
                raise ConfigError("colocated roles have different Ray options", where=f"{role}: {key}", got=value)
            else:
                options[key] = value
    return options


def _joined_env(role: str, known: dict[str, Any] | None, added: dict[str, Any] | None) -> dict[str, Any]:
    known_vars, added_vars = ((env or {}).get("env_vars") or {} for env in (known, added))
    clash = [name for name, text in added_vars.items() if known_vars.get(name, text) != text]
    if clash:
        raise ConfigError("colocated roles need different environments", where=role, got=clash)
    return merge_runtime_env(known, added)
