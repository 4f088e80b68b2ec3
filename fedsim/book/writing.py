"""The pages of the book as Markdown: a page per table or figure, and the overview of the claims."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedsim.book.checks import Verdict, judge
from fedsim.book.figures import columns_of, draw
from fedsim.book.pages import Claim, NumberTable, Page
from fedsim.book.records import CELL, Record, Store, mean_and_deviation

OVERVIEW = "overview.md"
MADE = "<!-- made by `fedsim book` -->\n"


def with_speed_ups(records: Sequence[Record], baseline: str) -> list[Record]:
    """The records with the number "speed-up": the rounds of the baseline with otherwise the same keys over their own."""
    rounds = {_without_cell(r): r.numbers.get("rounds") for r in records if r.keys.get(CELL) == baseline}
    found = []
    for record in records:
        own, base = record.numbers.get("rounds"), rounds.get(_without_cell(record))
        known = {"speed-up": base / own} if own and base else {}
        found.append(replace(record, numbers={**record.numbers, **known}))
    return found


def verdicts_of(page: Page, store: Store) -> list[Verdict]:
    """What came out of every check of the page."""
    records = with_speed_ups(store.records, page.baseline) if page.baseline else store.records
    tables = {table.title: table for table in page.tables}
    found = []
    for check in page.checks:
        table = tables[check.table] if check.table else page.tables[0]
        found.append(judge(check, records, table.number_of, table.number))
    return found


def draw_page(page: Page, store: Store, path: Path, labels: Mapping[str, str]) -> None:
    """Draws the picture of a page that has one."""
    draw(page, columns_of(store.records, labels), path)


def page_text(page: Page, store: Store, labels: Mapping[str, str]) -> str:
    """The page as Markdown."""
    columns = columns_of(store.records, labels)
    parts = [f"{MADE}# {page.title}\n", *_made_by(page, store)]
    if store.note:
        parts.append(f"{store.note}\n")
    parts += [_table(page, table, columns) for table in page.tables]
    if page.checks:
        parts += ["## What the paper claims\n", _checklist(verdicts_of(page, store), labels)]
    parts += ["## Why it differs\n", f"{page.deviation}\n"]
    if page.picture:
        parts.append(f"![{page.title}]({page.name}.png)\n")
    for other in page.further:
        parts.append(f"![{page.title}]({other})\n" if other.endswith(".png") else f"[More]({other})\n")
    return "\n".join(parts)


def overview_text(pages: Mapping[str, Page], stores: Mapping[str, Store], claims: Sequence[Claim]) -> str:
    """The status of every claim and the list of the pages, as Markdown."""
    found = {name: verdicts_of(page, stores[name]) for name, page in pages.items()}
    rows = []
    for claim in claims:
        own = [(name, v) for name, verdicts in found.items() for v in verdicts if v.check.claim == claim.number]
        rows.append(f"| {claim.number} | {claim.text} | {' | '.join(_status(claim, own))} |")
    count = {word: sum(f"| {word}" in row for row in rows) for word in ("holds", "does not hold", "not tested")}
    done = [f"| [{p.title}]({name}.md) | {_seeds(stores[name])} |" for name, p in pages.items() if stores[name].records]
    missing = [f"- {page.title}: {_command(page)}" for name, page in pages.items() if not stores[name].records]
    parts = [
        f"{MADE}# What holds\n",
        "Claims of the papers, checked on runs at a size for two cores, which are smaller than the papers'. A claim holds if"
        " all its checks do, for the means over seeds in every setting; behind it: in how many single runs (a seed in a"
        " setting). The pages tell which checks failed. `fedsim book` makes all of this.\n",
        f"Of {len(claims)} claims {count['holds']} hold, {count['does not hold']} do not, {count['not tested']} were not"
        " tested.\n",
        "| | claim | status | pages |\n|---|---|---|---|",
        *rows,
        "\n## Pages\n",
        "| page | seeds |\n|---|---|",
        *done,
    ]
    if missing:
        parts += ["\n## Not run\n", *missing]
    return "\n".join(parts) + "\n"


def status_of(verdicts: Sequence[Verdict]) -> str:
    """`holds`, `does not hold` or `not tested`: of a claim by the verdicts on all its checks."""
    tested = [verdict.holds for verdict in verdicts if verdict.holds is not None]
    return "not tested" if not tested else "holds" if all(tested) else "does not hold"


def _status(claim: Claim, own: Sequence[tuple[str, Verdict]]) -> tuple[str, str]:
    tested = [(name, verdict) for name, verdict in own if verdict.holds is not None]
    status = status_of([verdict for _, verdict in own])
    if not tested:
        return (f"not tested{': ' + claim.untested if claim.untested else ''}", "")
    right, compared = (sum(getattr(v, name) for _, v in tested) for name in ("right", "compared"))
    counted = f" ({right} of {compared})" if compared else " (means)"
    if len(tested) < len(own):
        counted += f", {len(tested)} of {len(own)} checks tested"
    links = dict.fromkeys(name for name, _ in tested)
    return status + counted, ", ".join(f"[{name}]({name}.md)" for name in links)


def _made_by(page: Page, store: Store) -> list[str]:
    lines = []
    for sweep in page.sweeps.values():
        size = sweep.scale.partition(": ")[2] or sweep.scale
        line = f"Ours: {size}; seeds: {_seeds(store)}."
        if line not in lines:
            lines.append(line)
    planned, found = sum(len(sweep.cells) for sweep in page.sweeps.values()), len(store.records)
    if lines and found < planned and not any(record.means for record in store.records):
        lines.append(f"{found} of {planned} runs were made so far.")
    full = f" At full size: `fedsim sweep {page.full}`." if page.full and page.full not in page.presets else ""
    return ["\n".join(lines) + (f"{full}\n" if lines else ""), f"```\n{_commands(page)}\n```\n"]


def _commands(page: Page) -> str:
    lines = [page.command] if page.command else []
    for preset in page.presets:
        name, _, pairs = preset.partition(" ")
        lines.append(
            " ".join([f"fedsim sweep {name} --set data-root=DIR", *(f"--set {pair}" for pair in pairs.split())])
        )
    return "\n".join([*lines, f"fedsim book --only {page.name}"])


def _command(page: Page) -> str:
    return f"`fedsim book --only {page.name}`"


def _seeds(store: Store) -> str:
    means = {record.means for record in store.records if record.means}
    seeds = {record.seed for record in store.records if record.seed is not None}
    return str(max(means)) if means else str(len(seeds)) if seeds else "1"


def _table(page: Page, table: NumberTable, columns: Mapping[str, Mapping[str, Sequence[Record]]]) -> str:
    cells = list(dict.fromkeys(cell for column in columns.values() for cell in column))
    paper = {
        (label, cell): page.published_of(column[cell][0], table.of(cell))
        for label, column in columns.items()
        for cell in column
    }
    published = {label for (label, _), text in paper.items() if text}
    head, rule = [table.title or ""], ["---"]
    for label in columns:
        head += ([f"{label} published".strip()] if label in published else []) + [f"{label} ours".strip()]
        rule += ["---:"] * (2 if label in published else 1)
    lines = [_row(head), _row(rule)]
    for cell in cells:
        row = [cell]
        for label, column in columns.items():
            row += [paper.get((label, cell), "")] if label in published else []
            row.append(_number(column.get(cell, ()), table.of(cell)))
        lines.append(_row(row))
    return "\n".join(lines) + "\n"


def _number(records: Sequence[Record], number: str) -> str:
    if not any(number in record.numbers for record in records):
        return ""
    mean, deviation, count = mean_and_deviation(records, number)
    if mean is None:
        reached = sum(record.numbers.get(number) is not None for record in records)
        return f"not reached ({reached} of {count} do)" if reached else "not reached"
    percent = number.split()[-1] in ("best", "final", "attack-success")
    form = ".4g" if not percent else ".1f" if records[0].means else ".2f"
    return f"{mean:{form}}" + (f" ± {deviation:{form}}" if deviation is not None else "")


def _checklist(verdicts: Sequence[Verdict], labels: Mapping[str, str]) -> str:
    lines = []
    for verdict in verdicts:
        mark = " " if not verdict.holds else "x"
        named = [", ".join(labels.get(value, value) for value in text.split(", ")) for text in verdict.fails]
        fails = f"; not: {'; '.join(named)}" if named and not verdict.check.negated else ""
        lines.append(f"- [{mark}] {verdict.check.says} (claim {verdict.check.claim}): {verdict.text}{fails}")
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _without_cell(record: Record) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, str(value)) for key, value in record.keys.items() if key != CELL))
