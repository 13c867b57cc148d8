"""The log of a run: complete lines stay, a torn last one is cut off and said so, other damage has its line."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpool.errors import CheckpointError, CheckpointWriteError
from contextpool.train.run_folder import RunFolder
from train.fault_injection import Faults, fail_with


def test_a_torn_last_line_is_left_out_and_cut_off_at_the_next_event(tmp_path: Path):
    with RunFolder.create(tmp_path, {}) as run:
        run.append_event({"n": 1})
        log = tmp_path / "events.jsonl"
        whole = log.read_bytes()
        for torn in (b'{"n"', b'{"n":2}', b"\0\0\0", b"\xff", b'{"text":"' + b"x" * 200_000):
            log.write_bytes(whole + torn)
            assert list(RunFolder.open(tmp_path).events()) == [{"n": 1}]
            run.append_event({"n": 3})
            removed = {"event": "torn_line_removed", "bytes": len(torn)}
            assert list(run.events()) == [{"n": 1}, removed, {"n": 3}]
        log.write_bytes(b'{"never ended"')
        run.append_event({"n": 4})
        assert list(run.events()) == [{"event": "torn_line_removed", "bytes": 14}, {"n": 4}]


@pytest.mark.parametrize(
    "line", [b'{"n"', b"", b"[1]", b"\xff", b'{"n":NaN}', b"\0", b'{"n":1}{"n":2}', b"[" * 100_000]
)
def test_a_broken_line_in_the_middle_is_an_error_with_its_number(line: bytes, tmp_path: Path):
    with RunFolder.create(tmp_path, {}) as run:
        run.append_event({"n": 1})
        with (tmp_path / "events.jsonl").open("ab") as log:
            log.write(line + b"\n")
        run.append_event({"n": 3})
        with pytest.raises(CheckpointError, match=r"events\.jsonl:2: ") as caught:
            list(run.events())
        assert "\n" not in str(caught.value)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path):
    with RunFolder.create(tmp_path, {}) as run:
        with pytest.raises(CheckpointError, match="Log less at once"):
            run.append_event({"text": "x" * 2_000_000})
        (tmp_path / "events.jsonl").write_bytes(b'{"n":1}\n' + b"x" * 3_000_000)
        with pytest.raises(CheckpointError, match=r"events\.jsonl:2: the line has more than"):
            list(run.events())


@given(
    events=st.lists(
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.text("a\n\r\u2028\0é"))
    )
)
def test_events_come_back_whatever_they_say(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, str]]
):
    with RunFolder.create(tmp_path_factory.mktemp("events"), {}) as run:
        for event in events:
            run.append_event(event)
        assert list(run.events()) == events


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=os.strerror)
def test_an_event_that_cannot_be_written_harms_no_other(number: int, tmp_path: Path):
    with RunFolder.create(tmp_path, {}) as run:
        run.append_event({"n": 1})
        with Faults(short_writes=True).injected() as dry_run:
            run.append_event({"n": 2})
        assert dry_run.steps.count("write") > 2
        expected = [{"n": 1}, {"n": 2}]
        for at in range(len(dry_run.steps)):
            faults = Faults(at, fail_with(number), short_writes=True)
            with faults.injected(), pytest.raises(CheckpointWriteError, match=os.strerror(number)) as caught:
                run.append_event({"n": 9})
            assert "\n" not in str(caught.value)
            assert [event for event in run.events() if "n" in event] == expected
        run.append_event({"n": 3})
        assert [event for event in run.events() if "n" in event] == [*expected, {"n": 3}]
