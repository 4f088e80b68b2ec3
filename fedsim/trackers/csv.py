"""`log=csv`: `csv/rounds.csv` in the run folder with a row per round, and `csv/clients.csv` with a row per evaluation and
client."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsim.config import LogParams
from fedsim.files import make_folder, naming, write_text
from fedsim.trackers.base import Row, TrackedRun, Tracker

FOLDER = "csv"


class CsvFiles(Tracker):
    """CSV files in the run folder: numbers by round, and by client"""

    tables = None

    def __init__(self, params: LogParams) -> None:
        super().__init__(params)
        self._round: dict[str, Any] = {}  # the row that is not written yet: the round may have more numbers

    def begin(self, run: TrackedRun) -> int:
        """Of a run that is resumed, rows after the checkpoint are dropped: they come again."""
        folder = run.folder / FOLDER
        make_folder(folder)
        self._rounds = Table(folder / "rounds.csv", ("round", *run.scalars))
        self._clients = Table(folder / "clients.csv", ("round", *run.columns))
        before = self._rounds.begin(-1 if run.done is None else run.done)
        self._clients.begin(-1 if run.done is None else run.done - 1)
        self._round = before.pop() if before and int(before[-1]["round"]) == run.done else {}
        if self._round:
            self._rounds.replace(before)
        return 0

    def scalars(self, number: int, values: Mapping[str, float]) -> None:
        if self._round and int(self._round["round"]) != number:
            self._rounds.append([self._round])
            self._round = {}
        self._round |= {"round": number, **values}

    def clients(self, number: int, rows: Sequence[Row]) -> None:
        self._clients.append([{"round": number, **row} for row in rows])

    def end(self, status: str, files: Mapping[str, Path]) -> None:
        if self._round:
            self._rounds.append([self._round])
            self._round = {}


class Table:
    """A CSV file that grows."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path, self._columns = path, columns

    def begin(self, last: int) -> list[dict[str, Any]]:
        """Keeps the rows up to round `last`, and returns them."""
        kept: list[dict[str, Any]] = []
        if last >= 0 and self._path.exists():
            with self._path.open(newline="") as file:
                kept = [
                    row for row in csv.DictReader(file) if (row["round"] or "").isdigit() and int(row["round"]) <= last
                ]
        self.replace(kept)
        return kept

    def replace(self, rows: Sequence[Mapping[str, Any]]) -> None:
        head = ",".join(self._columns) + "\n"
        write_text(self._path, head + self._text(rows))

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """All rows, or none if the disk is full."""
        with naming(self._path):
            size = self._path.stat().st_size
            try:
                with self._path.open("a", newline="") as file:
                    file.write(self._text(rows))
            except OSError:
                with self._path.open("r+") as file:
                    file.truncate(size)
                raise

    def _text(self, rows: Sequence[Mapping[str, Any]]) -> str:
        out = io.StringIO()
        csv.DictWriter(out, self._columns, extrasaction="ignore", lineterminator="\n").writerows(rows)
        return out.getvalue()
