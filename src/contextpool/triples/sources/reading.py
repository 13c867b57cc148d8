"""What a reader of text files finds out beside the triples: which columns it took, and which rows are bad.

Bad rows are told together, the first twenty of them, or with `bad_rows=skip` left out, counted and kept in a file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contextpool.errors import TripleFileError, warn
from contextpool.triples.files import atomic_file
from contextpool.triples.sources.address import Address, choice, retyped

SHOWN = 20
"""Bad rows that one report lists."""
COUNTED = 10_000
"""Bad rows after which a file that is refused anyway is not read further."""
MERGES = ("spaces", "case", "no")
LEFT_OUT = 1_000_000
"""Bad rows after which a file is another one than it is read as, whatever was asked."""


class BadRows:
    """The rows of one file that are no triples."""

    def __init__(self, address: Address, part: bool = False) -> None:
        """`part`: of a folder, whose files take no options."""
        self.address, self.part = address, part
        self.skip = choice(address, "bad_rows", "error", ("error", "skip")) == "skip"
        self.advice = ""
        """What to do where all rows are bad in the same way."""
        self.lines: list[int] = []
        self._found: list[tuple[int, str, bytes]] = []
        """(line, what is wrong, the row as it stands) of each."""

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def enough(self) -> bool:
        """Whether reading on would tell nothing more."""
        return len(self) >= (LEFT_OUT if self.skip else COUNTED)

    def add(self, line: int, what: str, row: bytes | str) -> None:
        self.lines.append(line)
        raw = row if isinstance(row, bytes) else row.encode("utf-8", "surrogateescape")
        self._found.append((line, what, raw))

    def finish(self, good: int) -> None:
        """At the end of the file: refuse the rows together, or say how many were left out of how many."""
        if not self:
            return
        if not self.skip:
            raise self.error(good)
        if not good or self.enough:
            share = "too many of its rows" if good else "all of its rows"
            raise self.error(good, f"{share.capitalize()} are bad to leave them out; is it another format?")
        place, (line, what, _) = self._write(), min(self._found)
        where = (
            f"they are in {place}"
            if place
            else "the folder one is in cannot be written, so they are not kept"
        )
        warn(
            f"{self.address.place}:{line}: {what} Left out {len(self):,} bad row"
            f"{'s' * (len(self) != 1)} of {good + len(self):,}; {where}."
        )

    def error(self, good: int, last: str = "") -> TripleFileError:
        """The first of them, line by line, and how to leave them out; the first alone where all rows are like it."""
        (first, problem, _), *others = sorted(self._found)[:SHOWN]
        if not good and self._alike():
            rows = f"All {'of the first ' * self.enough}{len(self):,} rows are like this." if others else ""
            told = (problem, last or rows, self.advice)
            return TripleFileError(self.address.place, first, " ".join(filter(None, told)))
        report = [problem, *(f"{self.address.place}:{line}: {what}" for line, what, _ in others)]
        if len(self) > SHOWN:
            least = "at least " if self.enough else ""
            report.append(f"... and {least}{len(self) - SHOWN:,} more bad rows")
        if not last and good and not self.part:
            which = "it" if len(self) == 1 else "them"
            last = f"To leave {which} out, type {retyped(self.address, bad_rows='skip')}"
        if last:
            report = [f"{report[0]} {last}"] if len(self) == 1 else [*report, last]
        return TripleFileError(self.address.place, first, "\n".join(report))

    def _alike(self) -> bool:
        """Whether the same is wrong with all of them, blank lines aside: what is said before the row is quoted."""
        return len({what.partition(":")[0] for _, what, row in self._found if row.strip()}) == 1

    def _write(self) -> Path | None:
        """The rows as they stand, each after its line and what is wrong, into the folder one is in."""
        place = Path(f"{self.address.path.name}.bad-rows.tsv")
        try:
            with atomic_file(place) as file:
                for line, what, row in sorted(self._found):
                    file.write(f"{line}\t{what}\t".encode("utf-8", "replace") + row + b"\n")
        except OSError:
            return None
        return place


@dataclass
class Reading:
    """One reading of a source: what those need who judge the data or speak about its lines."""

    address: Address
    bad: BadRows
    columns: Sequence[Any] | None = None
    """Head, relation and tail as positions or names that `columns` takes; None where none are chosen."""
    header: bool | None = None
    """Whether the first line was taken for names; None where that is no question."""
    first_line: int | None = None
    """The line of the first triple of a text file; None for what has no lines."""
    merge: str | None = None
    """`spaces` or `case`: names that differ by that only are to be one; `no`: they are meant."""
    find_line: Callable[[int], int] | None = field(default=None, repr=False)
    """For rows that may be several lines long: the line of row k."""

    @classmethod
    def of(cls, address: Address, part: bool = False) -> Reading:
        """For readers that do not know `merge`, which is done after them."""
        merge = choice(address, "merge", "spaces", MERGES) if "merge" in address.options else None
        options = {key: value for key, value in address.options.items() if key != "merge"}
        address = replace(address, options=options)
        return cls(address, BadRows(address, part), merge=merge)

    def instead(self, **changes: Any) -> str:
        """How to read the same source otherwise, as the end of a sentence."""
        return "mend the file." if self.bad.part else f"type {retyped(self.address, **changes)}"

    def place_of(self, row: int) -> str:
        """Where row k, counted from 0, stands: `facts.tsv:7`, or `facts.parquet, row 6`."""
        if self.first_line is None:
            return f"{self.address.place or self.address.text}, row {row:,} (from 0)"
        return f"{self.address.place}:{self.line_of(row)}"

    def line_of(self, row: int) -> int:
        """The line of row k, counted from 0, past the bad rows before it."""
        if self.find_line is not None:
            return self.find_line(row)
        line = row + (self.first_line or 1)
        while (later := row + (self.first_line or 1) + bisect_right(self.bad.lines, line)) != line:
            line = later
        return line
