"""Where the values of a trial come from: chance, every combination in turn, or Optuna's TPE from earlier trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from contextpool.errors import ConfigError, MissingExtraError
from lab.space import Parameter, Space, Values

SamplerName = Literal["random", "grid", "optuna"]
Score = tuple[Mapping[str, Any], float]
"""(values of a trial, its validation MRR on the highest rung it reached)"""
Sampler = Callable[[int, Sequence[Score]], Values]
"""(number of the new trial, what earlier ones came to) -> its values"""


def make_sampler(name: str, space: Space, seed: int) -> Sampler:
    """A sampler by its name. It keeps nothing: asked again with the same scores, it says the same."""
    if name == "random":
        return lambda trial, scores: space.draw(seed, trial)
    if name == "grid":
        combinations = space.combinations()
        return lambda trial, scores: combinations[trial]
    if name == "optuna":
        return _optuna_sampler(space, seed)
    raise ConfigError(f"--sampler is {name!r}; it is random, grid or optuna.")


def _optuna_sampler(space: Space, seed: int) -> Sampler:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("optuna", "tune", "The sampler 'optuna'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {parameter.key: _distribution(parameter) for parameter in space.parameters}
    by_key = {parameter.key: parameter for parameter in space.parameters}

    def sample(trial: int, scores: Sequence[Score]) -> Values:
        study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=1_000_003 * seed + trial)
        )
        for values, score in scores:
            known = {key: _coded(by_key[key], value) for key, value in values.items()}
            used = {key: distributions[key] for key in known}
            study.add_trial(optuna.trial.create_trial(params=known, distributions=used, value=score))
        asked = study.ask(distributions)
        return space.active({key: _decoded(by_key[key], code) for key, code in asked.params.items()})

    return sample


def _distribution(parameter: Parameter) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if parameter.choices:
        return CategoricalDistribution(list(range(len(parameter.choices))))
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)


def _coded(parameter: Parameter, value: Any) -> Any:
    """A choice by its place: it may be a list or a table."""
    return parameter.choices.index(value) if parameter.choices else value


def _decoded(parameter: Parameter, code: Any) -> Any:
    return parameter.choices[code] if parameter.choices else code
