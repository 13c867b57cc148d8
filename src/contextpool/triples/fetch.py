"""Download the files of a named dataset: resumable, and never a wrong byte under a final name.

A file grows as `<name>.part` beside its place and is renamed once its sha256 is the published one. A part
that was cut short is kept and resumed; one whose bytes turn out wrong is removed, since no resuming makes it
right. A file that already lies at its place is never overwritten: where it is not the published one, an error
says so.
"""

from __future__ import annotations

import contextlib
import http
import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast
from urllib.parse import quote, urlsplit

from contextpool.errors import ChecksumError, ConfigError, DataError, FetchError, OfflineError
from contextpool.triples.catalog import (
    CatalogEntry,
    CatalogFile,
    cache_folder,
    file_problem,
    locate,
    not_here,
    sha256_of,
)

try:
    import fcntl
except ImportError:  # not a POSIX system: there, only the checksums keep two downloads at once apart
    fcntl = None  # type: ignore[assignment]

Progress = Callable[[int, int, str], None]
"""Called with the bytes there are of a file, the bytes it will have, and its path below the data folder."""

CHUNK_BYTES = 1 << 16
_BUSY = (408, 425, 429)


@dataclass(frozen=True)
class Patience:
    """How long to wait for a source and how often to ask it again."""

    timeout_s: float = 30.0
    """Seconds without a byte after which a connection counts as dead."""
    attempts: int = 4
    """Requests to a source before it is given up."""
    backoff_s: float = 0.5
    """Seconds before the second request; doubled before each further one."""

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise ConfigError(f"fetch.timeout_s is {self.timeout_s}; it has to be greater than 0.")
        if self.attempts < 1:
            raise ConfigError(f"fetch.attempts is {self.attempts}; it has to be at least 1.")
        if not self.backoff_s >= 0:
            raise ConfigError(f"fetch.backoff_s is {self.backoff_s}; it has to be at least 0.")


@dataclass(frozen=True)
class _Job:
    """One call of `fetch`."""

    entry: CatalogEntry
    root: Path
    mirror: str | None
    patience: Patience
    progress: Progress | None

    def missing(self) -> list[CatalogFile]:
        return [file for file in self.entry.files if not _is_here(self.root, file)]

    def urls(self, file: CatalogFile) -> tuple[str, ...]:
        return file.urls if self.mirror is None else (f"{self.mirror.rstrip('/')}/{quote(file.path)}",)

    def part(self, file: CatalogFile) -> Path:
        target = self.root / file.path
        return target.with_name(f"{target.name}.part")


Kind = Literal["refused", "broken", "stale", "unreachable", "wrong"]
"""The source said no; it broke off; it cannot resume; it was never reached; it gave something else."""


class _SourceError(Exception):
    """Why one source did not give a file."""

    def __init__(self, kind: Kind, url: str, reason: object) -> None:
        super().__init__(f"{url}: {reason}")
        self.kind = kind

    @property
    def may_pass(self) -> bool:
        return self.kind in ("broken", "unreachable")


def fetch(
    entry: CatalogEntry,
    *,
    folder: str | Path | None = None,
    offline: bool = False,
    mirror: str | None = None,
    patience: Patience | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download what is missing of a dataset below `folder`, by default the cache; returns its own folder.

    `mirror` is a base address that holds the same paths as a data folder and replaces the published sources.
    With `offline`, or CONTEXTPOOL_OFFLINE=1, nothing is asked of the network.
    """
    if entry.embedded:
        embedded = locate(entry)
        if embedded is None:
            raise DataError(not_here(entry))
        return embedded
    if mirror is not None and urlsplit(mirror).scheme not in ("http", "https"):
        raise ConfigError(f"fetch.mirror is {mirror!r}; it has to start with http:// or https://.")
    root = cache_folder() if folder is None else Path(folder).expanduser()
    job = _Job(entry, root, mirror, patience or Patience(), progress)
    missing = job.missing()
    if missing and (offline or os.environ.get("CONTEXTPOOL_OFFLINE", "0") not in ("", "0")):
        raise OfflineError(
            f"{entry.name}: {len(missing)} of {len(entry.files)} files are missing in {root}, and no "
            f"download is wanted (offline, or CONTEXTPOOL_OFFLINE). {_by_hand(job, missing)}"
        )
    if missing:
        with _only_writer(root):
            for file in missing:
                _fetch_file(job, file)
    return root / entry.name


def _is_here(root: Path, file: CatalogFile) -> bool:
    """Whether the published file is at its place; something else there is an error, not overwritten."""
    if not (root / file.path).exists():
        return False
    problem = file_problem(root, file)
    if problem:
        raise ChecksumError(f"{problem}. It is not the published file; move it away and fetch again.")
    return True


@contextlib.contextmanager
def _only_writer(root: Path) -> Iterator[None]:
    """Hold the data folder's lock: two downloads into one `.part` file would mix."""
    with _named_write_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        lock = os.fdopen(_no_link(root / ".fetch.lock", os.O_WRONLY | os.O_CREAT), "wb")
    with lock:
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FetchError(
                f"{root}: another process is fetching into this folder. Try again when it is done."
            ) from None
        yield


def _no_link(path: str | Path, flags: int) -> int:
    """Open a file of ours; never one that a link in its place leads to, nor a pipe that waits for a reader."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


@contextlib.contextmanager
def _named_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FetchError(
            f"{path}: cannot be written ({error.strerror or error}). What was fetched is kept; make room or "
            "permit writing there, or set CONTEXTPOOL_HOME to another folder, and fetch again."
        ) from error


def _fetch_file(job: _Job, file: CatalogFile) -> None:
    """Bring one file to its place from the first source that gives it."""
    errors: list[_SourceError] = []
    with _named_write_errors(job.root / file.path):
        job.part(file).parent.mkdir(parents=True, exist_ok=True)
        for url in job.urls(file):
            try:
                return _complete_from(job, file, url)
            except _SourceError as error:
                errors.append(error)
    raise _failure(job, file, errors)


def _complete_from(job: _Job, file: CatalogFile, url: str) -> None:
    """Complete the part file from one source, check it, and give it its name."""
    part = job.part(file)
    if part.is_symlink():  # not of our making: what it leads to is not ours to write
        part.unlink()
    resumed = part.exists()
    _receive_patiently(job, file, url)
    if resumed and sha256_of(part) != file.sha256:
        part.unlink()  # what was kept may have been the wrong half of it
        _receive_patiently(job, file, url)
    if sha256_of(part) != file.sha256:
        size, found = part.stat().st_size, sha256_of(part)
        got = f"more than {file.size:,} bytes" if size > file.size else f"{size:,} bytes with sha256 {found}"
        part.unlink()
        wanted = f"{file.size:,} bytes with sha256 {file.sha256}"
        raise _SourceError("wrong", url, f"got {got}, expected {wanted}")
    part.replace(job.root / file.path)


def _receive_patiently(job: _Job, file: CatalogFile, url: str) -> None:
    """Ask until the whole file is there; after what may pass (a busy server, a cut line) ask again, later."""
    for attempt in range(1, job.patience.attempts + 1):
        try:
            return _receive(job, file, url)
        except _SourceError as error:
            if not error.may_pass or attempt == job.patience.attempts:
                raise
        time.sleep(job.patience.backoff_s * 2 ** (attempt - 1))
    raise AssertionError("the last attempt returns or raises")


def _receive(job: _Job, file: CatalogFile, url: str) -> None:
    """One request: for the rest of a part file where there is one, and for all of it otherwise."""
    part = job.part(file)
    have = part.stat().st_size if part.exists() else 0
    if have == file.size:
        return
    try:
        _receive_from(job, file, url, have if have < file.size else 0)
    except _SourceError as error:
        if error.kind != "stale":
            raise
        _receive_from(job, file, url, 0)


def _receive_from(job: _Job, file: CatalogFile, url: str, have: int) -> None:
    """Append the bytes from `have` on to the part file; a server that sends all of them starts it over."""
    with contextlib.closing(_open(url, have, job.patience.timeout_s)) as response:
        start = _start_of(response, url, have)
        with open(job.part(file), "ab" if start else "wb", opener=_no_link) as sink:
            for done in _copied(response, sink, url, start, file.size):
                if job.progress:
                    job.progress(min(done, file.size), file.size, file.path)
            sink.flush()
            os.fsync(sink.fileno())


def _open(url: str, have: int, timeout_s: float) -> http.client.HTTPResponse:
    """The answer to a request for the bytes from `have` on; what is no answer comes as a _SourceError."""
    headers = {"User-Agent": "contextpool", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        return cast("http.client.HTTPResponse", urllib.request.urlopen(request, timeout=timeout_s))
    except urllib.error.HTTPError as error:
        error.close()
        raise _SourceError(_kind_of(error.code), url, f"HTTP {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        untrusted = isinstance(error.reason, ssl.SSLCertVerificationError)
        raise _SourceError("refused" if untrusted else "unreachable", url, error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _SourceError("broken", url, str(error) or type(error).__name__) from None


def _kind_of(status: int) -> Kind:
    if status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return "stale"
    return "broken" if status >= 500 or status in _BUSY else "refused"


def _start_of(response: http.client.HTTPResponse, url: str, have: int) -> int:
    """At which byte of the file the answer starts: `have`, or 0 where the server ignored the range."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != have:
        raise _SourceError("stale", url, f"asked for the bytes from {have:,} on and got others")
    return have


def _copied(
    response: http.client.HTTPResponse, sink: IO[bytes], url: str, start: int, size: int
) -> Iterator[int]:
    """Write the body to the sink, a too long one not to its end; yields how long the file is by now."""
    done = start
    end = size if response.length is None else start + response.length
    while done <= size:
        try:
            block = response.read(CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise _SourceError("broken", url, str(error) or type(error).__name__) from None
        if not block:
            break
        sink.write(block)
        done += len(block)
        yield done
    if done < min(end, size):
        raise _SourceError("broken", url, f"the connection was cut after {done:,} of {end:,} bytes")


def _failure(job: _Job, file: CatalogFile, errors: list[_SourceError]) -> FetchError:
    """What to tell the user when no source gave the file."""
    kinds = {error.kind for error in errors}
    what = f"{job.entry.name}: {file.path} could not be fetched ({'; '.join(map(str, errors))})."
    by_hand = _by_hand(job, job.missing())
    if "wrong" in kinds:
        return ChecksumError(
            f"{what} The wrong bytes were removed. The source has changed, or something on the way answered "
            f"in its place (a proxy, a login page): try from another network. {by_hand}"
        )
    if kinds == {"unreachable"}:
        return OfflineError(f"{what} Is there a network? {by_hand}")
    part = job.part(file)
    if part.exists():
        what += f" {part.stat().st_size:,} of {file.size:,} bytes are kept, and the next fetch goes on from there."
    return FetchError(f"{what} Fetch again later. {by_hand}")


def _by_hand(job: _Job, missing: list[CatalogFile]) -> str:
    """How to do without the network: from which address to which place."""
    lines = [f"  {job.urls(file)[0]}\n    -> {job.root / file.path}" for file in missing]
    return (
        "By hand: get each file on a machine that can, put it at its place and fetch again, to check it:\n"
        + "\n".join(lines)
        + f"\nOrigin: {job.entry.origin}."
    )
