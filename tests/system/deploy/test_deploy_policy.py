"""A site's policy on a real federation: refused with its reason, shown, and noted in an unbroken log."""

import json
from pathlib import Path

import pytest

from fedsim.deploy import audit, policy
from fedsim.deploy.chaos.deployment import Deployment

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def test_a_policy_is_enforced_at_the_silo_and_shown(deployment: Deployment, tmp_path: Path) -> None:
    home = deployment.home("ward-3")
    (home / policy.FILE).write_text('algorithms = ["local"]\nmax-rounds = 3\n')
    try:
        refused = deployment.attempt("run", "--out", str(tmp_path / "refused"), "--set", "rounds=1")
        assert refused.returncode == 1
        (line,) = refused.stderr.splitlines()
        assert "node ward-3 refuses this: algorithm 'fedavg' is not allowed. Allowed: local" in line
        deployment.run(tmp_path / "allowed", "rounds=1", "algorithm=local")
        nodes = {node["name"]: node["policy"] for node in deployment.status()["nodes"]}
        assert nodes == {"ward-0": {}, "ward-1": {}, "ward-2": {}, "ward-3": {"algorithms": ["local"], "max-rounds": 3}}
        assert "policy of ward-3: algorithms: local; max-rounds: 3" in deployment.fedsim("status")
        (home / policy.FILE).write_text("max-round = 3\n")
        wrong = deployment.attempt("up").stderr
        assert "ward-3: " in wrong
        assert "policy.toml: unknown key 'max-round'. Did you mean 'max-rounds'?" in wrong
    finally:
        (home / policy.FILE).unlink()
    audit.verify(home / audit.FILE)
    entries = [json.loads(line) for line in (home / audit.FILE).read_text().splitlines()]
    (refusal,) = [entry for entry in entries if entry["what"] == "refused"]
    assert refusal["reason"] == "algorithm 'fedavg' is not allowed. Allowed: local"
    after = [entry for entry in entries if entry["n"] > refusal["n"]]
    assert [entry.get("message") for entry in after][:2] == [None, "query"]
    assert after[0]["settings"]["algorithm"] == "local"
