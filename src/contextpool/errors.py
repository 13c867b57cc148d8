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
  LostProcessError         one of several processes that train together has ended or cannot be reached
    PeerFailedError        it failed for a reason that it tells itself; has that error's exit code
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path


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


class LostProcessError(ContextPoolError):
    """One of several processes that train together has ended, or cannot be reached."""


class PeerFailedError(LostProcessError):
    """Another process failed, and tells why itself; this one ends the same way."""

    def __init__(self, rank: int, size: int, message: str, exit_code: int) -> None:
        super().__init__(f"process {rank} of {size} failed: {message}")
        self.exit_code = exit_code


def shortened(name: str, limit: int = 80) -> str:
    """A name as it can stand in a one-line message: quoted, control characters escaped, not too long."""
    quoted = repr(name)
    return quoted if len(quoted) <= limit else f"{quoted[:limit]}...' ({len(name):,} characters)"


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
