# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Backends that are services of their own; each package is optional and imported when its name is asked for."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl.errors import UnsupportedError
from verl.tracking.base import BACKENDS, Backend, RunInfo
from verl.tracking.names import NameCleaner
from verl.utils.import_utils import optional_import
from verl.utils.json_utils import to_jsonable
from verl.utils.metric.scalars import scalars

# MLflow's SQLite store locks itself while another run creates the same experiment.
MLFLOW_MAX_ATTEMPTS = 3
MLFLOW_SLEEP_SECONDS = 5
COMMON_STORE = Path("/tmp/mlruns.db")

COLUMNS = ("input", "output", "score")


def _package(name: str, backend: str) -> Any:
    return optional_import(name, needed_for=f"trainer.logger=[{backend}]")


@BACKENDS.register("wandb")
class Wandb(Backend):
    """Weights & Biases; `WANDB_ENTITY` and `trainer.wandb_proxy` are respected."""

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self._wandb = _package("wandb", "wandb")
        proxy = run.trainer_option("wandb_proxy")
        self._run = self._wandb.init(
            project=run.project_name,
            name=run.experiment_name,
            entity=os.environ.get("WANDB_ENTITY"),
            config=dict(run.config),
            settings=self._wandb.Settings(https_proxy=proxy) if proxy else None,
        )
        self._rows: list[list[Any]] = []

    def log(self, data: Mapping[str, Any], step: int) -> None:
        self._run.log(dict(data), step=step)

    def log_generations(self, samples: Sequence[Sequence[Any]], step: int) -> None:
        # A logged table cannot grow, so each step logs a new one with all rows so far.
        self._rows += [[step, *sample] for sample in samples]
        table = self._wandb.Table(columns=["step", *COLUMNS], data=self._rows)
        self._run.log({"val/generations": table}, step=step)

    def close(self) -> None:
        self._run.finish(exit_code=0)


@BACKENDS.register("mlflow")
class MLflow(Backend):
    """MLflow; `MLFLOW_TRACKING_URI` names the server, `MLFLOW_RUN_ID` an existing run to continue."""

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self._mlflow = _package("mlflow", "mlflow")
        self._names = NameCleaner()
        self._mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI") or default_store())
        self._start()
        flat = _flatten(to_jsonable(run.config))
        params = {self._names.clean(key): str(value)[:500] for key, value in flat.items()}
        if not os.environ.get("MLFLOW_RUN_ID"):
            # A run's parameters cannot change: one that is continued has them already.
            self._mlflow.log_params(params)

    def _start(self) -> None:
        for attempt in range(1, MLFLOW_MAX_ATTEMPTS + 1):
            try:
                if run_id := os.environ.get("MLFLOW_RUN_ID"):
                    self._mlflow.start_run(run_id=run_id)
                    return
                experiment = self._mlflow.set_experiment(self.run.project_name)
                self._mlflow.start_run(experiment_id=experiment.experiment_id, run_name=self.run.experiment_name)
                return
            except self._mlflow.exceptions.MlflowException:
                if attempt == MLFLOW_MAX_ATTEMPTS:
                    raise
                time.sleep(MLFLOW_SLEEP_SECONDS)

    def log(self, data: Mapping[str, Any], step: int) -> None:
        self._mlflow.log_metrics(self._names.clean_all(scalars(data)), step=step)

    def log_generations(self, samples: Sequence[Sequence[Any]], step: int) -> None:
        rows = [dict(zip(COLUMNS, to_jsonable(sample), strict=True)) for sample in samples]
        self._mlflow.log_dict({"step": step, "generations": rows}, f"val_generations/{step}.json")

    def close(self) -> None:
        self._mlflow.end_run()


@BACKENDS.register("swanlab")
class SwanLab(Backend):
    """SwanLab; `SWANLAB_API_KEY`, `SWANLAB_LOG_DIR` and `SWANLAB_MODE` are respected."""

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self._swanlab = _package("swanlab", "swanlab")
        if key := os.environ.get("SWANLAB_API_KEY"):
            self._swanlab.login(key)
        self._swanlab.init(
            project=run.project_name,
            experiment_name=run.experiment_name,
            config={"FRAMEWORK": "verl", **run.config},
            logdir=os.environ.get("SWANLAB_LOG_DIR", "swanlog"),
            mode=os.environ.get("SWANLAB_MODE", "cloud"),
        )

    def log(self, data: Mapping[str, Any], step: int) -> None:
        self._swanlab.log(scalars(data), step=step)

    def log_generations(self, samples: Sequence[Sequence[Any]], step: int) -> None:
        texts = [
            self._swanlab.Text(f"input: {question}\n\noutput: {answer}\n\nscore: {score}", caption=f"sample {index}")
            for index, (question, answer, score) in enumerate(samples, start=1)
        ]
        self._swanlab.log({"val/generations": texts}, step=step)

    def close(self) -> None:
        self._swanlab.finish()


@BACKENDS.register("clearml")
class ClearML(Backend):
    """ClearML; `series` is the last part of a metric's name, `title` what stands before it."""

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        clearml = _package("clearml", "clearml")
        self._task = clearml.Task.init(
            task_name=run.experiment_name, project_name=run.project_name, continue_last_task=True, output_uri=False
        )
        self._task.connect_configuration(dict(run.config), name="Hyperparameters")

    def log(self, data: Mapping[str, Any], step: int) -> None:
        reporter = self._task.get_logger()
        for name, value in scalars(data).items():
            title, _, series = name.rpartition("/")
            reporter.report_scalar(title=title or series, series=series, value=value, iteration=step)

    def log_generations(self, samples: Sequence[Sequence[Any]], step: int) -> None:
        rows = [list(COLUMNS), *(list(map(str, sample)) for sample in samples)]
        self._task.get_logger().report_table(
            title="Validation generations", series="generations", table_plot=rows, iteration=step
        )

    def close(self) -> None:
        self._task.close()


@BACKENDS.register("trackio")
class Trackio(Backend):
    """Trackio."""

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self._trackio = _package("trackio", "trackio")
        self._trackio.init(project=run.project_name, name=run.experiment_name, config=dict(run.config))

    def log(self, data: Mapping[str, Any], step: int) -> None:
        self._trackio.log(scalars(data), step=step)

    def close(self) -> None:
        self._trackio.finish()


@BACKENDS.register("vemlp_wandb")
def vemlp_wandb(run: RunInfo) -> Backend:
    """The Volcano Engine variant of wandb is left out."""
    raise UnsupportedError("the backend vemlp_wandb is left out", where="trainer.logger", remedy="use wandb")


def default_store() -> str:
    """The usual database in /tmp, or one of this user's own beside it where the usual one is another user's."""
    store = COMMON_STORE
    if os.path.lexists(store) and store.lstat().st_uid != os.getuid():
        store = store.with_name(f"{store.stem}-{os.getuid()}{store.suffix}")
    return f"sqlite:///{store}"


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten(value, f"{prefix}{key}/")
        else:
            flat[prefix + str(key)] = value
    return flat
