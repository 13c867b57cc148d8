"""Curves of a training elsewhere than in events.jsonl: TensorBoard, MLflow, Weights & Biases. Off unless asked for.

A tracker gets the run's config once, then the numbers of each epoch, or, once, of the rules that were learned. Its
package is imported when it is chosen.
It may not cost a run its result: what fails once training goes on is told on stderr, and tracking ends.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from contextpool.errors import ConfigError, ContextPoolError, MissingExtraError, shortened
from contextpool.train.progress import OnEvent
from contextpool.train.run_folder import TENSORBOARD

PROJECT = "contextpool"
"""The project or experiment that runs are filed under where nothing else is set."""


class Tracker(Protocol):
    """Where the curves of one run go."""

    def start(self, config: Mapping[str, Any]) -> None:
        """Before the first step; `config` is what config.json says, nested."""
        ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """After each epoch, or once all rules are learned; `step` counts from 1. A resumed run may log one again."""
        ...

    def finish(self, failed: bool = False) -> None:
        """At the end, however it comes about."""
        ...


class TensorBoardTracker:
    """Event files in the run's tensorboard/ folder."""

    def __init__(self, output: Path | None) -> None:
        if output is None:
            raise ConfigError(
                "track is 'tensorboard', which writes into the run folder, and there is none. "
                "Give one (output=...), or leave track out."
            )
        _required("tensorboard", "tensorboard")
        self._folder = output / TENSORBOARD
        self._config: Mapping[str, Any] = {}
        self._writer: Any = None

    def start(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer = self._opened(step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def _opened(self, step: int) -> Any:
        """What an earlier attempt logged from this step on is superseded."""
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(self._folder), purge_step=step)
        text = json.dumps(self._config, indent=2, sort_keys=True, default=str)
        writer.add_text("config", "    " + text.replace("\n", "\n    "), step)
        return writer

    def finish(self, failed: bool = False) -> None:
        if self._writer is not None:
            self._writer.close()


class MlflowTracker:
    """A run of MLflow, in the store that MLFLOW_TRACKING_URI names (MLflow's own default without it)."""

    def __init__(self, output: Path | None) -> None:
        self._mlflow = _required("mlflow", "mlflow")
        self._name = None if output is None else output.name
        self._client: Any = None
        self._run: str = ""

    def start(self, config: Mapping[str, Any]) -> None:
        self._client = self._mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        self._run = self._client.create_run(number, run_name=self._name).info.run_id
        for key, value in flattened(config).items():
            self._client.log_param(self._run, key, value)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def finish(self, failed: bool = False) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


class WandbTracker:
    """A run of Weights & Biases; offline unless WANDB_MODE says otherwise (`wandb sync` sends it later)."""

    def __init__(self, output: Path | None) -> None:
        self._wandb = _required("wandb", "wandb")
        self._name = None if output is None else output.name
        self._run: Any = None

    def start(self, config: Mapping[str, Any]) -> None:
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=self._name,
            config=dict(config),
            mode=os.environ.get("WANDB_MODE", "offline"),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, failed: bool = False) -> None:
        self._run.finish(exit_code=int(failed))


TRACKERS: dict[str, Callable[[Path | None], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
    "wandb": WandbTracker,
}


def chosen_tracker(track: str | Tracker | None, output: str | Path | None) -> Tracker | None:
    """The tracker of that name, or the one given; refused here, before anything is trained, if it can't be had."""
    if not isinstance(track, str):
        return track
    if track not in TRACKERS:
        raise ConfigError(f"track is {shortened(track)}; it is one of {', '.join(TRACKERS)}.")
    return TRACKERS[track](None if output is None else Path(output))


@contextmanager
def tracked(tracker: Tracker | None, config: Mapping[str, Any]) -> Iterator[OnEvent | None]:
    """Start, pass the numbers of each epoch on, and finish, whether or not training does."""
    if tracker is None:
        yield None
        return
    _start(tracker, config)
    guarded = _Guarded(tracker)
    try:
        yield guarded.log_event
    except BaseException:
        guarded.attempt(lambda: tracker.finish(failed=True))
        raise
    guarded.attempt(tracker.finish)


def _start(tracker: Tracker, config: Mapping[str, Any]) -> None:
    try:
        tracker.start(config)
    except ContextPoolError:
        raise
    except Exception as error:
        raise ConfigError(
            f"track: {_name(tracker)} can't be started ({shortened(str(error))}). Set it up, or leave track out."
        ) from error


class _Guarded:
    """Passes everything on to a tracker until that fails."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._has_failed = False

    def log_event(self, event: dict[str, Any]) -> None:
        if event.get("event") in ("epoch", "learned"):
            values = {key: float(event[key]) for key in event if key not in ("event", "epoch", "time")}
            self.attempt(lambda: self._tracker.log(int(event["epoch"]), values))

    def attempt(self, action: Callable[[], None]) -> None:
        if self._has_failed:
            return
        try:
            action()
        except Exception as error:  # whatever a package of somebody else's may raise
            self._has_failed = True
            print(
                f"{_name(self._tracker)} failed ({type(error).__name__}: {shortened(str(error))}); the run goes on "
                "without it. The run folder's events.jsonl has the numbers.",
                file=sys.stderr,
            )


def flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as `train.lr`; lists as JSON."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = json.dumps(value) if isinstance(value, (list, tuple)) else value
    return flat


def _required(package: str, track: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtraError(package, "track", f"track = {track!r}") from None


def _name(tracker: Tracker) -> str:
    return type(tracker).__name__
