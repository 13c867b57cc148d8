"""How long a training will take, told before it begins, and how much of it fits into a number of minutes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from contextpool.errors import ConfigError, spoken
from contextpool.train.config import TrainConfig

REFIT_SHARE = 0.25
"""Steps of the refit, as a share of those that the selected model was trained for."""
REFIT_RATE = 0.5
"""Its highest learning rate, as a share of the training's; it falls to zero."""
EPOCHS = 5
"""Epochs of a budget that does not ask every training query once: so often the model is validated."""
ASKING = 0.15
"""Share of a budget for all validations together, and again for the evaluation."""
FEWEST_FACTS = 50
"""Facts that a validation or an evaluation asks at least: fewer say nothing, nor can they be calibrated on."""
FEWEST_STEPS = 10
"""A budget of fewer steps is refused."""
TIMED_STEPS = 6
"""The timing of two models takes about as long as so many steps."""
TRIAL_FACTS = 300
"""Validation facts that ways to train are judged by."""
LONG = 120.0
"""Seconds of training from which on something faster is told."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a step and of a question, as timed on this machine."""

    step: float
    question: float


@dataclass(frozen=True)
class Budget:
    """Seconds that somebody gives a training with all that belongs to it."""

    seconds: float
    spent: float = 0.0
    """How many of them are gone."""
    tried: float = 0.0
    """Share of them in which ways to train may be tried before one is chosen."""

    @property
    def left(self) -> float:
        """Seconds; negative where more are gone than were given."""
        return self.seconds - self.spent

    @property
    def option(self) -> str:
        """As the caller writes it."""
        minutes = f"{self.seconds / 60:.3g}"
        return spoken(f"minutes={minutes}", f"--minutes {minutes}")


@dataclass(frozen=True)
class Work:
    """What there is to ask. An evaluation asks twice: the model, and the scorer that needs no training."""

    queries: int
    """Training queries, both directions."""
    valid_facts: int
    test_facts: int
    """0 where the training does not evaluate."""


def estimated(config: TrainConfig, pace: Pace, work: Work) -> float:
    """Seconds of training, validation, calibration, evaluation and refit; at most, since training may stop early."""
    steps = config.epochs * config.epoch_length(work.queries)
    steps += refit_steps(steps) if config.refit else 0
    valid, test = config.valid_facts or work.valid_facts, config.test_facts or work.test_facts
    rounds = config.epochs + 1 + (config.average_last > 1)  # one more is the calibration
    asked = 2 * min(valid, work.valid_facts) * rounds + 4 * min(test, work.test_facts)
    return steps * pace.step + asked * pace.question


def within(config: TrainConfig, pace: Pace, work: Work, budget: Budget) -> TrainConfig:
    """The same training in the time left: fewer or shorter epochs, and fewer facts to validate and evaluate on.

    Unchanged where all of it fits. What is chosen are numbers of steps and facts, so a run that is cut off and resumed
    ends like one that was not.
    """
    seconds = budget.left
    if estimated(config, pace, work) <= seconds:
        return config
    steps, shorter = _affordable_steps(config, pace, work, seconds)
    if steps < FEWEST_STEPS:
        smaller = spoken("settings={'dim': 16}", "--fast, --set model.dim=8")
        raise ConfigError(
            f"{budget.option} is too little time: what comes before the training took {told(budget.spent)}, a step "
            f"takes {pace.step:.2g} s here, and besides selecting and evaluating the model {max(steps, 0)} steps are "
            f"left, where {FEWEST_STEPS} are the fewest. Give it more "
            f"({_enough(config, pace, work, budget).option}), or train a smaller model ({smaller})."
        )
    whole = replace(config, epoch_steps=0).epoch_length(work.queries)
    for epochs in range(
        min(config.epochs, steps // whole), EPOCHS, -1
    ):  # whole epochs, each with its validation
        chosen = replace(shorter, epochs=epochs, epoch_steps=0)
        if estimated(chosen, pace, work) <= seconds:
            return chosen
    epochs = min(config.epochs, EPOCHS)
    return replace(shorter, epochs=epochs, epoch_steps=min(whole, steps // epochs))


def _enough(config: TrainConfig, pace: Pace, work: Work, budget: Budget) -> Budget:
    """The fewest whole minutes that do, and one more, as no two timings agree.

    What is gone will be gone again, and with more time more is timed and tried.
    """
    before = budget.spent + TIMED_STEPS * pace.step
    longer = (Budget(60.0 * minutes, before + budget.tried * 60.0 * minutes) for minutes in count(1))
    enough = next(b for b in longer if _affordable_steps(config, pace, work, b.left)[0] >= FEWEST_STEPS)
    return Budget(enough.seconds + 60.0)


def _affordable_steps(config: TrainConfig, pace: Pace, work: Work, seconds: float) -> tuple[int, TrainConfig]:
    """Steps that fit besides what is asked, and the training with so many facts to ask."""
    rounds = EPOCHS + 1 + (config.average_last > 1)
    valid = _affordable(ASKING * seconds / rounds, 2 * pace.question, config.valid_facts, work.valid_facts)
    test = _affordable(ASKING * seconds, 4 * pace.question, config.test_facts, work.test_facts)
    asking = 2 * valid * rounds * pace.question + 4 * test * pace.question
    steps = int((seconds - asking) / pace.step / (1 + REFIT_SHARE * config.refit))
    warmup = min(config.warmup_steps, max(0, steps) // 10)
    return steps, replace(config, valid_facts=valid, test_facts=test, warmup_steps=warmup)


def _affordable(seconds: float, each: float, wanted: int, there: int) -> int:
    """Facts to ask in so many seconds: no more than are wanted (0: all) or there, no fewer than say something."""
    most = min(wanted or there, there)
    return min(most, max(FEWEST_FACTS, int(seconds / each)))


def on_trial(
    configs: Sequence[TrainConfig],
    questions: Sequence[int],
    work: Work,
    paces: Sequence[Pace | None],
    seconds: float | None,
) -> list[TrainConfig] | None:
    """Short trainings by about so many questions each, judged by the same facts.

    With `seconds` none takes longer, by its pace; None where one would have too few steps.
    """
    facts = min(
        TRIAL_FACTS, work.valid_facts, *(config.valid_facts for config in configs if config.valid_facts)
    )
    if seconds is not None:
        question = max(pace.question for pace in paces if pace is not None)
        facts = _affordable(
            ASKING * seconds, 4 * question, facts, facts
        )  # a start is validated as it is, too
    chosen = []
    for config, wanted, pace in zip(configs, questions, paces, strict=True):
        steps, whole = math.ceil(wanted / config.batch_size), math.ceil(work.queries / config.batch_size)
        if seconds is not None and pace is not None:
            steps = min(steps, int((seconds - 4 * facts * pace.question) / pace.step))
            if steps < FEWEST_STEPS:
                return None
        epochs = math.ceil(steps / whole)
        chosen.append(
            replace(
                config,
                epochs=epochs,
                epoch_steps=math.ceil(steps / epochs),
                warmup_steps=min(config.warmup_steps, steps // 10),
                valid_facts=facts,
                average_last=0,
            )
        )
    return chosen


def refit_steps(steps: int) -> int:
    """Steps of the refit of a model that was trained for so many."""
    return math.ceil(REFIT_SHARE * steps)


def refit_config(config: TrainConfig, trained: int, num_queries: int) -> TrainConfig:
    """The training's settings for the refit of a model that was trained for so many steps."""
    steps = refit_steps(trained)
    whole = replace(config, epoch_steps=0).epoch_length(num_queries)
    epochs = max(1, math.ceil(steps / whole))
    return replace(
        config,
        epochs=epochs,
        epoch_steps=math.ceil(steps / epochs),
        lr=REFIT_RATE * config.lr,
        warmup_steps=min(config.warmup_steps, steps // 10),
        patience=0,
        average_last=0,
    )


def too_slow(step: float, seconds: float) -> bool:
    """Whether steps take so long that no training fits into so many seconds."""
    return FEWEST_STEPS * step > seconds


def timed(
    work: Callable[[], object],
    rounds: int = 2,
    goes_on: Callable[[float, int], bool] = lambda seconds, counted: True,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds that it takes, the mean of some rounds after one that is not counted: the first one compiles.

    `goes_on` hears the seconds so far and of how many rounds they are the mean, 0 for the first one, and may end it.
    """
    began = clock()
    work()
    seconds, counted, began = clock() - began, 0, clock()
    while counted < rounds and goes_on(seconds, counted):
        work()
        counted += 1
        seconds = (clock() - began) / counted
    return seconds


def plan_told(
    config: TrainConfig,
    pace: Pace,
    work: Work,
    *,
    budget: Budget | None = None,
    shorter: bool = False,
    gpu: bool = False,
) -> str:
    """How long it will take, what of, what is gone of a `budget`, and where it is long and could be `shorter`, how.

    A `gpu` may be there.
    """
    steps, seconds = config.epoch_length(work.queries), estimated(config, pace, work)
    valid = min(config.valid_facts or work.valid_facts, work.valid_facts)
    parts = [f"{config.epochs} epochs of {steps:,} steps at {pace.step:.2g} s, {valid:,} facts to select on"]
    if work.test_facts:
        parts.append(f"{min(config.test_facts or work.test_facts, work.test_facts):,} to evaluate on")
    if config.refit:
        parts.append(f"then at most {refit_steps(config.epochs * steps):,} steps with all facts")
    gone = "" if budget is None else f" ({told(budget.spent)} of {told(budget.seconds)} are gone)"
    message = f"will take {told(seconds)} at most from here on{gone}: {', '.join(parts)}"
    if shorter and seconds > LONG:
        ways = [
            f"--minutes {min(10, round(seconds / 180) or 1)} (as much as fits)",
            "--fast (a smaller model)",
        ]
        ways += ["--device cuda"] if gpu else []
        message += f". Faster: {', '.join(ways)}, or no training at all: --model walk, or ask without a run"
    return message


def told(seconds: float) -> str:
    """'40 s', '12 min', '3 h 20 min'."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
