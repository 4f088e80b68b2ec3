"""The check of a node's policy file."""

from pathlib import Path

from fedsim.deploy import policy
from fedsim.deploy.finding import Finding, ok, problem
from fedsim.errors import ConfigError


def site_policy(home: Path) -> Finding:
    """The policy in a node's home folder; one that cannot be used refuses every run."""
    try:
        found = policy.read(home)
        policy.check_names(found)
    except ConfigError as error:
        return problem("policy", str(error), f"correct {home / policy.FILE}: until then the node refuses every run")
    return ok("policy", policy.in_words(found.summary()))
