"""What campaigns found, as a table of faults and levels in Markdown."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsim.chaos.campaign import FAILED, LEVELS
from fedsim.errors import ConfigError, DamagedError
from fedsim.files import read_json, write_text

BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"


def markdown(files: Sequence[Path]) -> str:
    """A row for each fault; a cell says how many of how many were survived on a level. The columns are the levels. Of a
    trial that was repeated the last one counts."""
    trials = {(f["seed"], t["level"], t["number"]): t for f in map(_read, files) for t in f["trials"]}
    rows, seeds = dict[str, dict[str, list[int]]](), dict[str, set[int]]()
    for (seed, level, _), trial in trials.items():
        seeds.setdefault(level, set()).add(seed)
        cell = rows.setdefault(trial["fault"], {}).setdefault(level, [0, 0])
        cell[0] += trial["outcome"] not in FAILED
        cell[1] += 1
    levels = [level for level in LEVELS if level in seeds]
    order = sorted(rows, key=lambda fault: ([level not in rows[fault] for level in levels], fault))
    lines = [_line(["fault", *levels]), _line(["---", *["---:"] * len(levels)])]
    lines += [_line([fault, *(_cell(rows[fault].get(level)) for level in levels)]) for fault in order]
    totals = [[sum(row[level][i] for row in rows.values() if level in row) for i in (0, 1)] for level in levels]
    lines.append(_line(["all", *map(_cell, totals)]))
    drawn = "; ".join(f"{level}: {', '.join(map(str, sorted(seeds[level])))}" for level in levels)
    return "\n".join([f"Survived of injected, by the fault and the level. Seeds: {drawn}.", "", *lines])


def publish(files: Sequence[Path], page: Path) -> None:
    """Writes the table into a page, between two marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ConfigError(f"{page} has no lines {BEGIN} and {END}")
    write_text(page, f"{before}{BEGIN}\n{markdown(files)}\n{END}{after}")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
        if {"seed", "trials"} <= content.keys():
            return content
    except (OSError, DamagedError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    raise ConfigError(f"{path} is not a file of `fedsim chaos`")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(counts: Sequence[int] | None) -> str:
    return f"{counts[0]} of {counts[1]}" if counts else ""
