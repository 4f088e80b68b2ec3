"""An audit log: who asked for what, and what was refused, on the server and on every node.

    python -m fedsim.deploy.audit verify FILE [LINES HASH]   prints how many lines there are and the hash of the last one
    python -m fedsim.deploy.audit show FILE LINES            prints the last lines

One JSON object per line: `n`, its number; `time` (UTC); `what`; details; `previous`, the SHA-256 hash of the line before.
A line that is changed, inserted or removed breaks the chain. Lines that are cut off at the end do not: who remembers the
number of lines and the hash of the last one finds that, too.
"""

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from fedsim.errors import FedsimError

FILE = "audit.log"  # in the home folder of a machine
NO_LINE = "0" * 64  # `previous` of the first line
BLOCK = 4096
INCOMPLETE = (
    "after-incomplete"  # of a line whose predecessor was cut off, because the machine stopped while it was written
)


@dataclass(frozen=True)
class Verified:
    """An unbroken log: its lines, the hash of the last one, and the numbers of lines that were cut off by a crash."""

    lines: int
    head: str
    incomplete: tuple[int, ...] = ()


class AuditLog:
    """Appends to a log; several processes may use one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, what: str, /, durable: bool = True, **details: Any) -> None:
        """Adds a line; `durable`: and waits until the disk has it."""
        with self._locked() as file:
            last, complete = _last_line(file)
            number = _entry(last).get("n") or _count(file)
            entry = {"n": number + 1, "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "what": what, **details}
            if not complete:
                entry[INCOMPLETE] = True
            entry["previous"] = _hash(last) if last else NO_LINE
            file.seek(0, os.SEEK_END)
            file.write((b"" if complete else b"\n") + json.dumps(entry, ensure_ascii=False).encode() + b"\n")
            file.flush()
            if durable:
                os.fsync(file.fileno())

    def last(self) -> dict[str, Any]:
        """The last line; empty if there is none."""
        if not self.path.exists():
            return {}
        with self.path.open("rb") as file:
            return _entry(_last_line(file)[0])

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def verify(path: Path, lines: int = 0, head: str = "") -> Verified:
    """Checks the whole chain, and that line number `lines` still has the hash `head`, if it is known from before.

    Raises FedsimError that names the first broken line.
    """
    number, previous, damaged, incomplete = 0, NO_LINE, "", list[int]()
    for number, line in enumerate(_lines(path), start=1):
        entry = _entry(line)
        if damaged and entry.get(INCOMPLETE) is not True:
            raise FedsimError(f"{path}, line {number - 1} {damaged}")
        if damaged:
            incomplete.append(number - 1)
        damaged = "" if entry else "is not an entry of an audit log"
        if entry and entry.get("n") != number:
            raise FedsimError(f"{path}, line {number} has the number {entry.get('n')}: lines were removed or inserted")
        if entry and entry.get("previous") != previous:
            raise FedsimError(f"{path}, line {max(1, number - 1)} was changed: line {number} holds another hash of it")
        previous = _hash(line)
        if number == lines and head and previous != head:
            raise FedsimError(f"{path}, line {number} was changed: its hash was {head[:12]}, now it is {previous[:12]}")
    if number < lines:
        raise FedsimError(f"{path}, line {number + 1} is missing: the log had {lines} lines, now it has {number}")
    if damaged:
        with path.open("rb") as file:
            if _last_line(file)[1]:
                raise FedsimError(f"{path}, line {number} {damaged}")
        incomplete.append(number)
    return Verified(number, previous, tuple(incomplete))


def show(path: Path, count: int) -> Iterator[str]:
    """The last lines, for people."""
    for line in list(_lines(path))[-count:] if count else ():
        entry = _entry(line)
        details = {key: value for key, value in entry.items() if key not in ("n", "time", "what", "previous")}
        told = " ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in details.items())
        yield f"{entry['n']:>6} {entry['time']} {entry['what']} {told}".rstrip() if entry else f"       {line!r}"


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                yield line.removesuffix(b"\n")


def _entry(line: bytes) -> dict[str, Any]:
    """The object in a line; empty if there is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and {"n", "time", "what", "previous"} <= set(found) else {}


def _last_line(file: IO[bytes]) -> tuple[bytes, bool]:
    """The last line, and whether it is complete: it ends with a newline."""
    at, tail = file.seek(0, os.SEEK_END), b""
    while at and b"\n" not in tail.rstrip(b"\n"):
        step = min(BLOCK, at)
        at = file.seek(at - step)
        tail = file.read(step) + tail
    line = tail.removesuffix(b"\n").rpartition(b"\n")[2]
    return line, not tail or tail.endswith(b"\n")


def _count(file: IO[bytes]) -> int:
    file.seek(0)
    return sum(1 for _ in file)


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def main(verb: str, path: Path, rest: list[str]) -> int:
    try:
        if verb == "show":
            print("\n".join(show(path, int(rest[0]))))
        else:
            print(json.dumps(vars(verify(path, int(rest[0]), rest[1]) if rest else verify(path))))
    except FedsimError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
