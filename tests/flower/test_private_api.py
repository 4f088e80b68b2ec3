"""What fedsim uses of Flower beyond its public API: only in fedsim/flower, and as the installed Flower has it."""

import ast
import inspect
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINE = "1.39"  # the Flower release that fedsim is written for
PUBLIC = {"flwr.app", "flwr.serverapp", "flwr.serverapp.strategy", "flwr.clientapp", "flwr.simulation"}
ADAPTER = ROOT / "fedsim" / "flower"
SOURCES = ("fedsim", "strategies", "clients", "partitions", "deploy", "benchmarks", "tests")

# Parameters by which fedsim calls a function, or whose defaults it changes.
PARAMETERS = {
    "flwr.cli.build:build_fab_from_files": {"files"},
    "flwr.common.serde:fab_to_proto": {"fab"},
    "flwr.common.serde:user_config_to_proto": {"user_config"},
    "flwr.supercore.control:ControlHttpClient.from_server_address": {
        "server_address",
        "insecure",
        "root_certificates",
        "interceptors",
    },
    "flwr.supercore.fab:Fab": {"hash_str", "content", "verifications"},
    "flwr.supercore.inflatable.inflatable_utils:pull_and_inflate_object_from_tree": {"initial_backoff"},
    "flwr.supercore.inflatable.inflatable_utils:pull_objects": {"initial_backoff"},
    "flwr.supercore.interceptors:RuntimeVersionHttpInterceptor": {"component_name"},
    "flwr.supercore.interceptors:SuperExecAuthHttpInterceptor": {"master_secret", "protected_methods"},
    "flwr.supercore.primitives.asymmetric:public_key_to_bytes": {"public_key"},
    "flwr.supercore.run:Run.create_empty": {"run_id"},
    "flwr.supercore.runtime:RuntimeHttpClient.from_server_address": {
        "server_address",
        "insecure",
        "root_certificates",
        "interceptors",
        "retry_invoker",
    },
    "flwr.supernode.runtime.run_clientapp:install_from_fab": {"fab_file", "skip_prompt"},
    "flwr.supernode.runtime.run_clientapp:run_clientapp": {"runtime_api_address", "token", "insecure", "parent_pid"},
}
ATTRIBUTES = {
    "flwr.supercore.constant:TaskType": {"CLIENT_APP"},
    "flwr.supercore.control:ControlHttpClient": {
        "ListNodes",
        "ListRuns",
        "RegisterNode",
        "StartRun",
        "StopRun",
        "StreamLogs",
        "UnregisterNode",
        "close",
    },
    "flwr.supercore.retry:grpc_retry": {"MAX_RETRY_DELAY"},
    "flwr.supercore.runtime:RuntimeHttpClient": {"AcquireTask"},
    "flwr.supercore.task_identity:TaskIdentity": {"_run_id", "_node_id", "_task_id"},
    "flwr.supernode.runtime:run_clientapp": {"get_load_client_app_fn", "install_from_fab"},
    "flwr.supernode:start_client_internal": {"time"},
}
FIELDS = {
    "flwr.proto.control_pb2:ListNodesResponse": {"nodes_info"},
    "flwr.proto.control_pb2:ListRunsRequest": {"run_id"},
    "flwr.proto.control_pb2:ListRunsResponse": {"run_dict"},
    "flwr.proto.control_pb2:RegisterNodeRequest": {"public_key", "name"},
    "flwr.proto.control_pb2:StartRunRequest": {"fab", "override_config"},
    "flwr.proto.control_pb2:StartRunResponse": {"run_id"},
    "flwr.proto.control_pb2:StopRunRequest": {"run_id"},
    "flwr.proto.control_pb2:StreamLogsRequest": {"run_id", "after_timestamp"},
    "flwr.proto.control_pb2:StreamLogsResponse": {"latest_timestamp", "log_output"},
    "flwr.proto.control_pb2:UnregisterNodeRequest": {"node_id"},
    "flwr.proto.node_pb2:NodeInfo": {
        "heartbeat_interval",
        "last_activated_at",
        "name",
        "node_id",
        "online_until",
        "public_key",
        "status",
    },
    "flwr.proto.run_pb2:Run": {
        "bytes_recv",
        "bytes_sent",
        "finished_at",
        "pending_at",
        "run_id",
        "running_at",
        "status",
    },
    "flwr.proto.run_pb2:RunStatus": {"status", "sub_status", "details"},
    "flwr.proto.runtime_pb2:AcquireTaskRequest": {"supported_task_types"},
    "flwr.proto.runtime_pb2:AcquireTaskResponse": {"task", "token"},
}
WAITS = {3, 0.5}  # seconds; every `time.sleep` of the SuperNode's main loop


def private_imports(path: Path) -> set[tuple[str, str]]:
    """(module, name) of what a file imports from private modules of Flower, or by a private name; name "" for a module."""
    found = set[tuple[str, str]]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {(node.module or "", alias.name) for alias in node.names}
    flower = {(module, name) for module, name in found if module.partition(".")[0] == "flwr"}
    return {(module, name) for module, name in flower if module not in PUBLIC or name.startswith("_")}


def test_private_parts_of_flower_are_imported_in_one_package() -> None:
    sources = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    allowed = {ADAPTER, Path(__file__).parent}
    outside = {str(path): found for path in sources if path.parent not in allowed and (found := private_imports(path))}
    assert outside == {}, "these imports belong into fedsim/flower"
    assert any(private_imports(path) for path in ADAPTER.glob("*.py"))


def test_the_installed_flower_has_every_private_part_that_is_used() -> None:
    """An upgrade of Flower fails here, with the list of what fedsim/flower has to be adapted to."""
    installed = version("flwr")
    problems = [] if installed.startswith(f"{LINE}.") else [f"flwr {installed} is installed, not {LINE}"]
    for path in sorted(ADAPTER.glob("*.py")):
        for module, name in sorted(private_imports(path)):
            if find(f"{module}:{name}") is None:
                problems.append(f"{module} has no {name} (used by {path.name})")
    for table, names_of in ((PARAMETERS, parameters), (ATTRIBUTES, dir), (FIELDS, fields)):
        for target, wanted in table.items():
            found = find(target)
            if found is None or not wanted <= set(names_of(found)):
                problems.append(f"{target} lacks some of {sorted(wanted)}")
    if (main_loop := find("flwr.supernode:start_client_internal")) and sleeps(main_loop) != WAITS:
        problems.append(f"the SuperNode's main loop sleeps {sleeps(main_loop)} s, not {WAITS}")
    assert not problems, f"fedsim/flower is written for Flower {LINE}:\n" + "\n".join(problems)


def find(target: str) -> Any:
    """The object that "module:name.name" names; None if it does not exist."""
    module, _, names = target.partition(":")
    try:
        found = import_module(module)
        for name in filter(None, names.split(".")):
            found = getattr(found, name, None) or import_module(f"{module}.{name}")
    except (ImportError, AttributeError):
        return None
    return found


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def fields(message: Any) -> list[str]:
    return list(message.DESCRIPTOR.fields_by_name)


def sleeps(module: Any) -> set[Any]:
    """The arguments of every `time.sleep(...)` in a module."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    return {ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func) == "time.sleep"}
