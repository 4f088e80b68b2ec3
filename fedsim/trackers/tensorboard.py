"""`log=tensorboard`: event files in `tensorboard/` of the run folder. Neither torch nor TensorFlow is needed."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.trackers.base import Row, TrackedRun, Tracker

FOLDER = "tensorboard"
BINS = 30  # of a histogram


class EventFile:
    """A file of TensorBoard's events."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary, self._histogram = Event, Summary, HistogramProto
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(folder), flush_secs=5)

    def restart(self, number: int) -> None:
        """Readers forget what earlier files say of the rounds after `number`."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._write(step=number + 1, session_log=SessionLog(status=SessionLog.START))

    def scalars(self, number: int, values: Mapping[str, float]) -> None:
        found = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step=number, summary=self._summary(value=found))

    def histogram(self, number: int, name: str, values: Sequence[float]) -> None:
        counts, edges = np.histogram(values, BINS)
        told = self._histogram(
            min=min(values),
            max=max(values),
            num=len(values),
            sum=sum(values),
            sum_squares=sum(value * value for value in values),
            bucket_limit=edges[1:].tolist(),
            bucket=counts.tolist(),
        )
        self._write(step=number, summary=self._summary(value=[self._summary.Value(tag=name, histo=told)]))

    def text(self, name: str, markdown: str) -> None:
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        tensor, about = make_tensor_proto([markdown.encode()]), create_summary_metadata(name, "")
        self._write(step=0, summary=self._summary(value=[self._summary.Value(tag=name, metadata=about, tensor=tensor)]))

    def picture(self, number: int, name: str, png: bytes) -> None:
        width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
        image = self._summary.Image(width=width, height=height, colorspace=4, encoded_image_string=png)
        self._write(step=number, summary=self._summary(value=[self._summary.Value(tag=name, image=image)]))

    def _write(self, **content: Any) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), **content))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class TensorBoard(Tracker):
    """TensorBoard's event files in the run folder: curves, and histograms over clients"""

    needs = {"tensorboard": "tensorboard"}  # noqa: RUF012
    tables = 100

    def begin(self, run: TrackedRun) -> int:
        self._file, self._rounds = EventFile(run.folder / FOLDER), run.rounds
        if run.done is None:
            rows = "".join(f"| {key} | {value} |\n" for key, value in run.config.items())
            self._file.text("configuration", f"| key | value |\n|---|---|\n{rows}")
        else:
            self._file.restart(run.done)
        return 0

    def scalars(self, number: int, values: Mapping[str, float]) -> None:
        self._file.scalars(number, values)

    def clients(self, number: int, rows: Sequence[Row]) -> None:
        for name in rows[0]:
            values = [float(value) for row in rows if (value := row[name]) is not None]
            if name != "client" and values:
                self._file.histogram(number, f"clients/{name}", values)

    def end(self, status: str, files: Mapping[str, Path]) -> None:
        for path in files.values():
            if path.suffix == ".png":
                self._file.picture(self._rounds, path.stem, path.read_bytes())
        self._file.close()
