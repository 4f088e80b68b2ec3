"""What the operator's machine remembers of audit logs."""

from pathlib import Path

import pytest

from fedsim.deploy import remembered_logs
from fedsim.deploy.audit import Verified
from fedsim.deploy.inventory import Inventory, Server
from fedsim.errors import FedsimError


def test_logs_are_remembered_by_machine_and_forgotten_with_their_home(tmp_path: Path) -> None:
    inventory = Inventory("wards", Server(), (), tmp_path)
    assert remembered_logs.read(inventory) == {}
    remembered_logs.remember(inventory, {"a": Verified(3, "abc"), "b": Verified(1, "d")})
    remembered_logs.remember(inventory, {"b": Verified(2, "ef")})
    assert remembered_logs.read(inventory) == {"a": (3, "abc"), "b": (2, "ef")}
    remembered_logs.forget(inventory, ["a"])
    assert remembered_logs.read(inventory) == {"b": (2, "ef")}
    remembered_logs.forget(inventory, ["b"])
    assert remembered_logs.read(inventory) == {}


def test_a_changed_memory_is_refused(tmp_path: Path) -> None:
    inventory = Inventory("wards", Server(), (), tmp_path)
    remembered_logs.remember(inventory, {"a": Verified(3, "abc")})
    path = tmp_path / remembered_logs.FILE
    path.write_text(path.read_text().replace("3", "2", 1))
    with pytest.raises(FedsimError, match=r"\.audit\.json"):
        remembered_logs.read(inventory)
