"""Downloads against a server of the test's own on the loopback interface; no test asks the real network."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contextpool.errors import ChecksumError, ConfigError, FetchError, OfflineError
from contextpool.triples import fetch as fetch_module
from contextpool.triples.catalog import CatalogEntry, CatalogFile, find
from contextpool.triples.fetch import CHUNK_BYTES, Patience, fetch
from loopback import Handler, Server, cut_after, serving, status

CONTENT = {
    "grail/tiny/train.txt": b"".join(b"e%d\tr\te%d\n" % (n, n + 1) for n in range(9_000)),
    "grail/tiny/test.txt": b"e1\tr\te5\n",
}
TRAIN, TEST = "grail/tiny/train.txt", "grail/tiny/test.txt"
SIZE = len(CONTENT[TRAIN])
AT_ONCE = Patience(timeout_s=5, attempts=3, backoff_s=0)
ONE_TRY = Patience(timeout_s=5, attempts=1, backoff_s=0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("CONTEXTPOOL_OFFLINE", raising=False)
    with serving(CONTENT) as running:
        yield running


def published(path: str, *urls: str) -> CatalogFile:
    body = CONTENT[path]
    return CatalogFile(path, hashlib.sha256(body).hexdigest(), len(body), urls)


def entry(base: str, *paths: str) -> CatalogEntry:
    files = tuple(published(path, f"{base}/{path}") for path in paths or CONTENT)
    return CatalogEntry("grail/tiny", inductive=True, origin="made for this test", files=files)


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {
        ".fetch.lock"
    }


def kept(folder: Path) -> bytes:
    return (folder / f"{TRAIN}.part").read_bytes()


def test_all_files_arrive_whole_and_the_folder_is_returned(server: Server, tmp_path: Path) -> None:
    folder = fetch(entry(server.url), folder=tmp_path, patience=ONE_TRY)
    assert folder == tmp_path / "grail/tiny"
    assert {path: (tmp_path / path).read_bytes() for path in below(tmp_path)} == CONTENT


def test_by_default_the_files_go_to_the_cache(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTPOOL_HOME", str(tmp_path / "home"))
    assert fetch(entry(server.url), patience=ONE_TRY) == tmp_path / "home/grail/tiny"
    assert below(tmp_path / "home") == set(CONTENT)


def test_files_that_are_there_are_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / TRAIN).parent.mkdir(parents=True)
    (tmp_path / TRAIN).write_bytes(CONTENT[TRAIN])
    fetch(entry(server.url), folder=tmp_path, patience=ONE_TRY)
    fetch(entry(server.url), folder=tmp_path, patience=ONE_TRY)
    assert server.asked == [(TEST, None)]


def test_a_mirror_replaces_the_published_addresses(server: Server, tmp_path: Path) -> None:
    fetch(entry("http://published.invalid"), folder=tmp_path, mirror=server.url + "/", patience=ONE_TRY)
    assert below(tmp_path) == set(CONTENT)


def test_the_second_address_is_asked_where_the_first_fails(server: Server, tmp_path: Path) -> None:
    file = published(TEST, f"{server.url}/moved.txt", f"{server.url}/{TEST}")
    fetch(CatalogEntry("grail/tiny", True, "here", (file,)), folder=tmp_path, patience=ONE_TRY)
    assert server.asked == [("moved.txt", None), (TEST, None)]
    assert (tmp_path / TEST).read_bytes() == CONTENT[TEST]


def test_progress_grows_to_the_size_of_each_file(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    fetch(
        entry(server.url),
        folder=tmp_path,
        patience=ONE_TRY,
        progress=lambda done, size, name: seen.append((done, size, name)),
    )
    of_train = [done for done, size, name in seen if name == TRAIN and size == SIZE]
    assert len(of_train) > 1
    assert of_train == sorted(set(of_train))
    assert seen[-1] == (len(CONTENT[TEST]), len(CONTENT[TEST]), TEST)
    assert of_train[-1] == SIZE


def test_the_next_run_asks_only_for_the_rest_after_a_cut(server: Server, tmp_path: Path) -> None:
    server.misbehave = [cut_after(50_000)]
    with pytest.raises(
        FetchError, match=r"cut after 50,000 of .* bytes are kept, and the next fetch goes on"
    ):
        fetch(entry(server.url, TRAIN), folder=tmp_path, patience=ONE_TRY)
    assert kept(tmp_path) == CONTENT[TRAIN][:50_000]
    assert below(tmp_path) == {f"{TRAIN}.part"}

    fetch(entry(server.url, TRAIN), folder=tmp_path, patience=ONE_TRY)
    assert server.asked == [(TRAIN, None), (TRAIN, "bytes=50000-")]
    assert (tmp_path / TRAIN).read_bytes() == CONTENT[TRAIN]
    assert below(tmp_path) == {TRAIN}


def test_one_run_goes_on_by_itself_after_a_cut(server: Server, tmp_path: Path) -> None:
    server.misbehave = [cut_after(1_000)]
    fetch(entry(server.url, TRAIN), folder=tmp_path, patience=AT_ONCE)
    assert server.asked == [(TRAIN, None), (TRAIN, "bytes=1000-")]
    assert (tmp_path / TRAIN).read_bytes() == CONTENT[TRAIN]


def test_a_server_that_ignores_ranges_starts_the_file_over(server: Server, tmp_path: Path) -> None:
    server.honours_ranges = False
    server.misbehave = [cut_after(1_000)]
    fetch(entry(server.url, TRAIN), folder=tmp_path, patience=AT_ONCE)
    assert server.asked[1] == (TRAIN, "bytes=1000-")
    assert (tmp_path / TRAIN).read_bytes() == CONTENT[TRAIN]


@pytest.mark.parametrize(
    "confused", [status(416), lambda handler, body: handler.send(206, body[5:], "bytes 5-9/10")]
)
def test_a_server_that_cannot_resume_is_asked_for_the_whole_file(
    server: Server, tmp_path: Path, confused: Callable[[Handler, bytes], None]
) -> None:
    start_a_part(tmp_path, CONTENT[TRAIN][:700])
    server.misbehave = [confused]
    grown: list[int] = []
    fetch(
        entry(server.url, TRAIN),
        folder=tmp_path,
        patience=ONE_TRY,
        progress=lambda done, size, name: grown.append(done),
    )
    assert server.asked == [(TRAIN, "bytes=700-"), (TRAIN, None)]
    assert grown[0] == CHUNK_BYTES  # nothing of the confused answer was taken
    assert (tmp_path / TRAIN).read_bytes() == CONTENT[TRAIN]


def start_a_part(folder: Path, content: bytes) -> None:
    part = folder / f"{TRAIN}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)


def test_a_wrong_beginning_is_thrown_away_and_the_file_fetched_anew(server: Server, tmp_path: Path) -> None:
    start_a_part(tmp_path, b"x" * 700)
    fetch(entry(server.url, TRAIN), folder=tmp_path, patience=ONE_TRY)
    assert server.asked == [(TRAIN, "bytes=700-"), (TRAIN, None)]
    assert (tmp_path / TRAIN).read_bytes() == CONTENT[TRAIN]


def test_a_part_longer_than_the_file_is_started_over(server: Server, tmp_path: Path) -> None:
    start_a_part(tmp_path, b"x" * (SIZE + 1))
    fetch(entry(server.url, TRAIN), folder=tmp_path, patience=ONE_TRY)
    assert server.asked == [(TRAIN, None)]
    assert (tmp_path / TRAIN).read_bytes() == CONTENT[TRAIN]


def test_a_complete_part_needs_no_request(server: Server, tmp_path: Path) -> None:
    start_a_part(tmp_path, CONTENT[TRAIN])
    fetch(entry(server.url, TRAIN), folder=tmp_path, patience=ONE_TRY)
    assert server.asked == []
    assert below(tmp_path) == {TRAIN}


@pytest.mark.parametrize(
    "body",
    [
        CONTENT[TRAIN][:-1] + b"!",
        CONTENT[TRAIN][:-9],
        CONTENT[TRAIN] + b"more",
        b"<html>please log in</html>",
    ],
)
def test_other_bytes_leave_nothing_behind(server: Server, tmp_path: Path, body: bytes) -> None:
    server.content[TRAIN] = body
    with pytest.raises(ChecksumError) as caught:
        fetch(entry(server.url, TRAIN), folder=tmp_path, patience=AT_ONCE)
    assert below(tmp_path) == set()
    message = str(caught.value)
    expected = hashlib.sha256(CONTENT[TRAIN]).hexdigest()
    got = "more than" if len(body) > SIZE else hashlib.sha256(body).hexdigest()
    for part in (
        TRAIN,
        f"{server.url}/{TRAIN}",
        f"expected {SIZE:,} bytes with sha256 {expected}",
        got,
        "By hand",
    ):
        assert part in message
    assert len(server.asked) == 1  # wrong bytes do not get right by asking again


def test_an_endless_answer_is_not_read_to_its_end(server: Server, tmp_path: Path) -> None:
    sent = 0

    def pour(handler: Handler, body: bytes) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        for _ in range(200):
            handler.wfile.write(bytes(1 << 20))
            sent += 1

    server.misbehave = [pour]
    with pytest.raises(ChecksumError, match="got more than"):
        fetch(entry(server.url, TRAIN), folder=tmp_path, patience=ONE_TRY)
    assert sent < 200
    assert below(tmp_path) == set()


def test_something_else_at_the_place_of_a_file_is_not_overwritten(server: Server, tmp_path: Path) -> None:
    (tmp_path / TRAIN).parent.mkdir(parents=True)
    (tmp_path / TRAIN).write_bytes(b"mine\tis\tthis\n")
    with pytest.raises(ChecksumError, match=r"13 bytes instead of .*move it away and fetch again"):
        fetch(entry(server.url), folder=tmp_path, patience=ONE_TRY)
    assert (tmp_path / TRAIN).read_bytes() == b"mine\tis\tthis\n"
    assert server.asked == []


def test_a_missing_file_says_where_it_was_looked_for_and_is_not_retried(
    server: Server, tmp_path: Path
) -> None:
    del server.content[TEST]
    with pytest.raises(FetchError) as caught:
        fetch(entry(server.url, TEST), folder=tmp_path, patience=AT_ONCE)
    assert type(caught.value) is FetchError
    for part in (f"{server.url}/{TEST}: HTTP 404", "By hand", f"-> {tmp_path / TEST}", "made for this test"):
        assert part in str(caught.value)
    assert len(server.asked) == 1


def test_what_came_before_a_failure_is_kept(server: Server, tmp_path: Path) -> None:
    del server.content[TEST]
    with pytest.raises(FetchError) as caught:
        fetch(entry(server.url), folder=tmp_path, patience=ONE_TRY)
    assert below(tmp_path) == {TRAIN}
    assert TRAIN not in str(caught.value)  # only what is still missing has to be got by hand


@pytest.mark.parametrize("code", [503, 500, 429])
def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path, code: int) -> None:
    server.misbehave = [status(code), status(code)]
    fetch(entry(server.url, TEST), folder=tmp_path, patience=AT_ONCE)
    assert len(server.asked) == 3
    assert (tmp_path / TEST).read_bytes() == CONTENT[TEST]


def test_a_server_that_stays_busy_is_given_up(server: Server, tmp_path: Path) -> None:
    server.misbehave = [status(503)] * 9
    with pytest.raises(FetchError, match="HTTP 503"):
        fetch(entry(server.url, TEST), folder=tmp_path, patience=AT_ONCE)
    assert len(server.asked) == AT_ONCE.attempts


def test_the_wait_doubles_from_attempt_to_attempt(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(fetch_module.time, "sleep", waits.append)
    server.misbehave = [status(503)] * 3
    fetch(entry(server.url, TEST), folder=tmp_path, patience=Patience(attempts=4, backoff_s=0.5))
    assert waits == [0.5, 1.0, 2.0]


def test_a_silent_server_times_out_and_is_asked_again(server: Server, tmp_path: Path) -> None:
    release = threading.Event()

    def say_nothing(handler: Handler, body: bytes) -> None:
        release.wait(10)

    server.misbehave = [say_nothing]
    try:
        fetch(
            entry(server.url, TEST),
            folder=tmp_path,
            patience=Patience(timeout_s=0.2, attempts=2, backoff_s=0),
        )
    finally:
        release.set()
    assert (tmp_path / TEST).read_bytes() == CONTENT[TEST]
    assert len(server.asked) == 2


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.usefixtures("server")
def test_no_network_says_what_to_do_by_hand(tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(OfflineError) as caught:
        fetch(entry(base), folder=tmp_path, patience=AT_ONCE)
    for path in CONTENT:
        assert f"{base}/{path}\n    -> {tmp_path / path}" in str(caught.value)
    assert "grail/tiny" in str(caught.value)
    assert "refused" in str(caught.value)
    assert below(tmp_path) == set()


def test_a_network_that_answers_somewhere_is_not_called_missing(server: Server, tmp_path: Path) -> None:
    file = published(TEST, f"http://127.0.0.1:{free_port()}/{TEST}", f"{server.url}/moved.txt")
    with pytest.raises(FetchError, match="HTTP 404") as caught:
        fetch(CatalogEntry("grail/tiny", True, "here", (file,)), folder=tmp_path, patience=ONE_TRY)
    assert not isinstance(caught.value, OfflineError)


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_offline_asks_nothing_and_says_what_is_missing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "environment":
        monkeypatch.setenv("CONTEXTPOOL_OFFLINE", "1")
    with pytest.raises(OfflineError, match="2 of 2 files are missing") as caught:
        fetch(entry(server.url), folder=tmp_path, offline=how == "argument")
    assert f"{server.url}/{TEST}\n    -> {tmp_path / TEST}" in str(caught.value)
    assert server.asked == []
    assert below(tmp_path) == set()


def test_offline_is_content_with_files_that_are_there(server: Server, tmp_path: Path) -> None:
    fetch(entry(server.url), folder=tmp_path, patience=ONE_TRY)
    asked = list(server.asked)
    assert fetch(entry(server.url), folder=tmp_path, offline=True) == tmp_path / "grail/tiny"
    assert server.asked == asked


def test_files_put_there_by_hand_are_checked(server: Server, tmp_path: Path) -> None:
    for path, content in CONTENT.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    fetch(entry(server.url), folder=tmp_path, offline=True)
    (tmp_path / TEST).write_bytes(CONTENT[TEST].upper())
    with pytest.raises(ChecksumError, match=r"test\.txt: sha256 is"):
        fetch(entry(server.url), folder=tmp_path, offline=True)


def test_two_downloads_into_one_folder_do_not_mix(server: Server, tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / ".fetch.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FetchError, match="another process is fetching into this folder"):
            fetch(entry(server.url), folder=tmp_path, patience=ONE_TRY)
    fetch(entry(server.url), folder=tmp_path, patience=ONE_TRY)
    assert below(tmp_path) == set(CONTENT)


def test_a_folder_that_cannot_be_written_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "grail").write_text("a file where a folder should be")
    with pytest.raises(FetchError, match=r"train\.txt: cannot be written"):
        fetch(entry(server.url), folder=tmp_path, patience=ONE_TRY)


def test_the_embedded_graph_needs_no_download(server: Server, tmp_path: Path) -> None:
    assert (fetch(find("world"), folder=tmp_path, offline=True) / "train.txt").is_file()
    assert below(tmp_path) == set()


@pytest.mark.parametrize("mirror", ["file:///etc", "ftp://x", "nowhere"])
def test_only_web_addresses_are_mirrors(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(ConfigError, match=r"fetch\.mirror"):
        fetch(entry("http://published.invalid"), folder=tmp_path, mirror=mirror)


@pytest.mark.parametrize(
    ("setting", "value"), [("timeout_s", 0), ("timeout_s", float("nan")), ("attempts", 0), ("backoff_s", -1)]
)
def test_patience_refuses_by_its_key(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"fetch\.{setting} is"):
        Patience(**{setting: value})  # type: ignore[arg-type]
