"""How a federation is: its machines, its nodes, its runs."""

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.federation import Federation
from fedsim.errors import FedsimError


def gather(federation: Federation, doctor: bool = False) -> dict[str, Any]:
    """As data. A machine or a server that does not answer is part of the answer."""
    agents = federation.agents()
    try:
        online, runs, link = federation.nodes_online(), federation.runs(), "answers"
    except FedsimError as error:
        online, runs, link = {}, [], str(error)
    nodes = [
        {"name": name, "processes": agents[name], **{"status": "unknown", **online.get(name, {})}}
        for name in federation.nodes
    ]
    current = [run for run in runs if not run["status"].startswith("finished")]
    healthy = link == "answers" and all(node["status"] == "online" for node in nodes)
    found: dict[str, Any] = {
        "federation": federation.inventory.name,
        "healthy": healthy,
        "server": {"processes": agents["server"], "superlink": link},
        "nodes": nodes,
        "current": current,
        "runs": runs,
    }
    if doctor:
        found["doctor"] = federation.examine(federation.everyone, "--reach")
    return found


def show(found: dict[str, Any], now: float) -> None:
    console = Console()
    server = found["server"]
    console.print(
        f"{found['federation']}: server {server['processes']}, SuperLink {server['superlink']}", highlight=False
    )
    table = Table("node", "status", "online for", "last seen", "processes")
    for node in found["nodes"]:
        since, seen = node.get("online-since"), node.get("last-seen")
        table.add_row(
            node["name"],
            node["status"],
            _span(now - since) if since else "-",
            f"{_span(now - seen)} ago" if seen else "-",
            node["processes"],
        )
    console.print(table)
    for run in found["current"] or found["runs"][-1:]:
        began = f"{datetime.fromtimestamp(run['started']):%Y-%m-%d %H:%M:%S}" if run["started"] else "not yet"
        console.print(
            f"run {run['id']}: {run['status']}, started {began}, "
            f"{run['bytes-in'] / 1e6:.1f} MB in, {run['bytes-out'] / 1e6:.1f} MB out",
            highlight=False,
        )
    for name, rows in found.get("doctor", {}).items():
        for row in rows:
            if row["level"] != "ok":
                console.print(f"{name}: {row['level']}: {row['told']}. {row['remedy']}", highlight=False)
    if "doctor" in found and not any(row["level"] != "ok" for rows in found["doctor"].values() for row in rows):
        console.print("the doctor found nothing wrong on any machine")


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
