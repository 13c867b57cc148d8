"""Everything contextpool raises on purpose. Each message says where, what, why, what next.

ContextPoolError
  InputError               the caller's input is wrong; the command line exits with 2
    DataError              a file, a triple, a layout
      TripleFileError      one line of one file
    UnknownNameError       an entity, relation or dataset that does not exist
      WrongNamesError      several such names, or names that mean several things, told at once
    ConfigError            a setting out of its range
  NonFiniteError           a score, a loss or a gradient is NaN or infinite
  MissingExtraError        an optional dependency is not installed
  FetchError               a download failed; what was already fetched is kept
    OfflineError           there is no network, or it is not wanted
    ChecksumError          the bytes are not the published ones
  CheckpointError          a checkpoint, or another file of a run folder, is damaged or missing
    CheckpointWriteError   it cannot be written: full disk, no permission, in use; what was there is kept
  StoppedError             Ctrl-C or SIGTERM ended a training; says what is kept and how to go on
  LostProcessError         one of several processes that train together has ended or cannot be reached
    PeerFailedError        it failed for a reason that it tells itself; has that error's exit code
DataWarning                data that can be read, but is probably not what it seems (a Python warning)
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_SPEAKS_OPTIONS: ContextVar[bool] = ContextVar("speaks_options", default=False)


@contextmanager
def speaking_options() -> Iterator[None]:
    """Within it, messages speak of options, as who types a command knows them, and not of Python's arguments."""
    before = _SPEAKS_OPTIONS.set(True)
    try:
        yield
    finally:
        _SPEAKS_OPTIONS.reset(before)


def spoken(python: str, options: str) -> str:
    """What the caller would write: in Python, or on the command line."""
    return options if _SPEAKS_OPTIONS.get() else python


def setting(name: str, value: object = None) -> str:
    """A setting as the caller writes it: `on_unknown='skip'` in Python, `--on-unknown skip` on the command line."""
    option = f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"
    return spoken(
        name if value is None else f"{name}={value!r}",
        option if value in (None, True) else f"{option} {value}",
    )


class ContextPoolError(Exception):
    """Root of the tree. `exit_code` is what the command line returns for it."""

    exit_code = 1


class InputError(ContextPoolError, ValueError):
    """The caller's input is wrong."""

    exit_code = 2


class DataError(InputError):
    """A file, a triple or a folder layout cannot be what it claims to be."""


class TripleFileError(DataError):
    """One line of one triple file is wrong."""

    def __init__(self, path: str | Path, line: int, what: str) -> None:
        super().__init__(f"{path}:{line}: {what}")
        self.path = str(path)
        self.line = line


class UnknownNameError(InputError):
    """A name that does not exist, with the closest ones that do."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        super().__init__(unknown_name_message(kind, name, known, hint))
        self.kind = kind
        self.name = name


class WrongNamesError(UnknownNameError):
    """Names that do not exist or mean several things, all of them told at once."""

    def __init__(self, problems: Sequence[tuple[str, str, str]], hint: str = "", shown: int = 10) -> None:
        """`problems` are (kind, name, message); the first `shown` messages are listed, the rest counted."""
        told = [message.rstrip(".") for _, _, message in problems[:shown]]
        if len(problems) > shown:
            told.append(f"and {len(problems) - shown:,} more")
        start = "" if len(problems) == 1 else f"{len(problems):,} names cannot be used: "
        ContextPoolError.__init__(self, f"{start}{'; '.join(told)}. {hint}".rstrip())
        self.kind, self.name = problems[0][:2]
        self.names = [(kind, name) for kind, name, _ in problems]


class ConfigError(InputError):
    """A setting out of its range; names the key and the value."""


class NonFiniteError(ContextPoolError):
    """A score, a loss or a gradient is NaN or infinite: nothing computed from it would mean anything."""


class MissingExtraError(ContextPoolError, ImportError):
    """An optional dependency is not installed; names the extra that brings it."""

    exit_code = 2

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'contextpool[{extra}]'"
        )


class FetchError(ContextPoolError):
    """A download failed; what was fetched so far is kept for the next try."""


class OfflineError(FetchError):
    """There is no network, or the caller asked for none."""


class ChecksumError(FetchError):
    """The bytes are not the published ones."""


class CheckpointError(ContextPoolError):
    """A checkpoint, or another file of a run folder, is damaged, missing or not what it claims to be."""

    exit_code = 2


class CheckpointWriteError(CheckpointError):
    """A run folder cannot be written: full disk, no permission, in use. What was there before is kept."""

    exit_code = 1


class StoppedError(ContextPoolError):
    """Ctrl-C or SIGTERM ended a training. `exit_code` is the one a shell gives to that signal."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(f"stopped by {'Ctrl-C' if signal_number == 2 else 'SIGTERM'}: {message}")
        self.exit_code = 128 + signal_number


class LostProcessError(ContextPoolError):
    """One of several processes that train together has ended, or cannot be reached."""


class PeerFailedError(LostProcessError):
    """Another process failed, and tells why itself; this one ends the same way."""

    def __init__(self, rank: int, size: int, message: str, exit_code: int) -> None:
        super().__init__(f"process {rank} of {size} failed: {message}")
        self.exit_code = exit_code


class DataWarning(UserWarning):
    """Data that can be read, but is probably not what it seems, or of which rows were left out as asked."""


def warn(message: str) -> None:
    """A DataWarning at the first caller outside this package; told once, as Python's warnings are."""
    package = str(Path(__file__).parent)
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DataWarning, stacklevel=level)


def shortened(name: str, limit: int = 80) -> str:
    """A name as it can stand in a one-line message: quoted, control characters escaped, not too long."""
    quoted = repr(name)
    return quoted if len(quoted) <= limit else f"{quoted[:limit]}...' ({len(name):,} characters)"


def printable(text: str) -> str:
    """What somebody else says, for a message: without characters that would do something to a terminal."""
    return "".join(letter for letter in text if letter.isprintable())


def closest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Known names that look like `name`, best first; same letters in another case count as closest."""
    if len(name) > 200:  # difflib is quadratic, and nobody mistypes this much
        return []
    candidates = list(known)
    folded = [other for other in candidates if other.casefold() == name.casefold()]
    pool = candidates if len(candidates) <= 20_000 else _sharing_a_prefix(name, candidates)
    matches = difflib.get_close_matches(name, pool, n=limit, cutoff=0.6)
    return list(dict.fromkeys([*folded, *matches]))[:limit]


def _sharing_a_prefix(name: str, candidates: list[str]) -> list[str]:
    start = name[:3].casefold()
    return [other for other in candidates if other[:3].casefold() == start][:20_000]


def unknown_name_message(kind: str, name: str, known: Iterable[str], hint: str = "") -> str:
    """Such as: relation 'x' is unknown (7 known, closest 'y', 'z'). <hint>"""
    names = list(known)
    near = closest(name, names)
    suggestion = f", closest {', '.join(repr(other) for other in near)}" if near else ""
    message = f"{kind} {shortened(name)} is unknown ({len(names):,} known{suggestion})."
    return f"{message} {hint}".rstrip()
