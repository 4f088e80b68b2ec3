"""`fedsim deploy status`: the machines, nodes and runs of a federation."""

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from fedsim.deploy.federation import Federation
from fedsim.deploy.policy import in_words
from fedsim.errors import FedsimError

AT_ITS_SITE = "at its site"  # of nodes that joined: commands do not reach them


def gather(federation: Federation, doctor: bool = False) -> dict[str, Any]:
    """The status as data; a machine or SuperLink that does not answer is reported in it, not raised.

    `doctor`: also examine every machine.
    """
    agents, policies = federation.agents(), federation.policies()
    try:
        registered, runs, superlink = federation.registered_nodes(), federation.runs(), "answers"
    except FedsimError as error:
        registered, runs, superlink = {}, [], str(error)
    nodes = [
        {
            "name": name,
            "processes": agents.get(name, AT_ITS_SITE),
            "policy": policies.get(name, AT_ITS_SITE),
            **{"status": "unknown", **registered.get(name, {})},
        }
        for name in (node.name for node in federation.inventory.nodes)
    ]
    current = [run for run in runs if not run["status"].startswith("finished")]
    healthy = superlink == "answers" and all(node["status"] == "online" for node in nodes)
    found: dict[str, Any] = {
        "federation": federation.inventory.name,
        "healthy": healthy,
        "server": {"processes": agents["server"], "superlink": superlink},
        "nodes": nodes,
        "certificates": [vars(finding) for finding in federation.certificates()],
        "current": current,
        "runs": runs,
    }
    if doctor:
        found["doctor"] = federation.doctor(federation.hosts, "--reach")
    return found


def show(found: dict[str, Any], now: float) -> None:
    """Prints the status; `now` is the time (Unix) that ages are counted from."""
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
            _duration(now - since) if since else "-",
            f"{_duration(now - seen)} ago" if seen else "-",
            node["processes"],
        )
    console.print(table)
    for node in found["nodes"]:
        policy = node["policy"]
        if policy:
            told = policy if isinstance(policy, str) else in_words(policy)
            console.print(f"policy of {node['name']}: {told}", highlight=False)
    for row in found["certificates"]:
        if row["level"] != "ok":
            console.print(f"{row['level']}: {row['message']}. {row['remedy']}", highlight=False)
    for run in found["current"] or found["runs"][-1:]:
        started = f"{datetime.fromtimestamp(run['started']):%Y-%m-%d %H:%M:%S}" if run["started"] else "not yet"
        console.print(
            f"run {run['id']}: {run['status']}, started {started}, "
            f"{run['bytes-in'] / 1e6:.1f} MB in, {run['bytes-out'] / 1e6:.1f} MB out",
            highlight=False,
        )
    for name, rows in found.get("doctor", {}).items():
        for row in rows:
            if row["level"] != "ok":
                console.print(f"{name}: {row['level']}: {row['message']}. {row['remedy']}", highlight=False)
    if "doctor" in found and not any(row["level"] != "ok" for rows in found["doctor"].values() for row in rows):
        console.print("the doctor found nothing wrong on any machine")


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
