"""A run on a server that cannot be reached any more."""

from pathlib import Path

import pytest

from fedsim.deploy import following
from fedsim.deploy.federation import Federation
from fedsim.deploy.following import ConnectionLost
from fedsim.deploy.inventory import FILE, read
from fedsim.deploy.setup import init


def test_a_connection_that_stays_broken_is_told_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that should reach the server ends at once; nothing is fetched."""
    monkeypatch.setattr(following, "RECONNECT_SECONDS", 0.1)
    (tmp_path / FILE).write_text('[server]\nvia = "true"\n[[node]]\nname = "ward"\n')
    list(init(tmp_path, "wards", "127.0.0.1", 1, [], False))
    lines = list[str]()
    with pytest.raises(ConnectionLost) as lost:
        Federation(read(tmp_path / FILE), lines.append).follow("17", tmp_path / "run")
    assert "the run 17 goes on there: `fedsim deploy run --follow 17 --out" in str(lost.value)
    assert lines == []
    assert not (tmp_path / "run").exists()
