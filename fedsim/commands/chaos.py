"""`fedsim chaos`: injects seeded faults into small runs and compares each with its undisturbed twin."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.chaos.campaign import Campaign, Result

DEFAULT_LEVELS = ("inline", "grid", "ray")
CHOICES = (*DEFAULT_LEVELS, "federation")


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("chaos", help="inject faults into small runs and check what becomes of them")
    parser.add_argument("--seed", type=int, default=0, help="of the faults (default: %(default)s)")
    parser.add_argument("--faults", type=int, default=100, help="how many, on all levels (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=1e6, metavar="M", help="begin none after so many minutes")
    parser.add_argument(
        "--level",
        action="append",
        choices=CHOICES,
        help=f"where runs happen, may be repeated (default: {', '.join(DEFAULT_LEVELS)})",
    )
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with the fault with this number")
    parser.add_argument("--only", type=int, metavar="N", help="only the fault with this number of one level")
    parser.add_argument("--out", type=Path, default=Path("chaos"), help="folder for results (default: %(default)s)")
    parser.add_argument(
        "--from", dest="files", nargs="+", type=Path, metavar="JSON", help="inject nothing; with --into"
    )
    parser.add_argument(
        "--into", type=Path, metavar="PAGE", help="write the table of these results into a Markdown page"
    )
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from fedsim.chaos.campaign import Campaign
    from fedsim.chaos.matrix import markdown, publish
    from fedsim.chaos.process import preload
    from fedsim.files import write_json

    if args.files:
        publish(args.files, args.into) if args.into else print(markdown(args.files))
        return 0
    levels = args.level or DEFAULT_LEVELS
    campaign = Campaign(args.seed, levels, args.out.resolve())
    preload()

    def report(result: "Result") -> None:
        print(told(result), flush=True)
        write_json(args.out / "chaos.json", campaign.as_json(), durable=False)  # each time: a campaign may be killed

    try:
        campaign.run(args.faults, args.minutes, report, args.first, args.only)
    finally:
        show(campaign)
    for result in campaign.failed():
        again = f"fedsim chaos --seed {args.seed} --level {result.level} --faults {args.faults} --only {result.number}"
        print(f"{result.level} {result.number} is {result.outcome}; again: {again}")
    return 1 if campaign.failed() else 0


def told(result: "Result") -> str:
    """One line about a trial."""
    about = f"{result.level} {result.number}: {result.fault}, {result.scenario}: {result.outcome}"
    return "; ".join([f"{about} ({result.seconds:.1f} s)", *result.notes, *result.problems])


def show(campaign: "Campaign") -> None:
    """Prints the matrix: faults and levels, how often injected, and what came of it."""
    from rich.table import Table

    from fedsim.chaos.campaign import OUTCOMES
    from fedsim.report.tables import show as show_table

    table = Table(title=f"faults of seed {campaign.seed}")
    for name in ("level", "fault"):
        table.add_column(name)
    for name in ("injected", *OUTCOMES):
        table.add_column(name, justify="right")
    for row in campaign.matrix():
        table.add_row(*map(str, row.values()))
    show_table(table)
