"""Certificates that expire or are replaced in the middle of a run."""

import time
from datetime import UTC, datetime, timedelta

from fedsim.chaos.fault import Trial
from fedsim.deploy import pki
from fedsim.deploy.chaos.deployment import Deployment
from fedsim.deploy.chaos.machines import OnFederation, kill, level_of

LIFETIME = timedelta(seconds=60)  # and what `up` takes: enough to restart the server and begin a run
AFTER = 6  # rounds that a command may take
WAIT = ("--wait", "180")


class OnCertificates(OnFederation):
    """Machines restart with other certificates. The run lasts as long as the commands: in every round a client sleeps."""

    loss, scenarios = "results of nodes that were restarted", ("slow",)
    latest = 2

    def inject(self, trial: Trial) -> None:
        level = level_of(trial)
        assert level.deployment
        trial.settings += (f"stragglers.unit={max(3.0, level.up_seconds / AFTER):.1f}",)
        super().inject(trial)


class Rotate(OnCertificates):
    """The server gets another certificate and every node another key, in the middle of a run."""

    name = "rotated keys and certificate"
    commands: tuple[tuple[str, ...], ...] = (("init", "--rotate"), ("up", *WAIT))

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        for words in self.commands:
            deployment.fedsim(*words)


class NewIntermediate(Rotate):
    """The intermediate CA is replaced, and then the server's certificate."""

    name = "replaced intermediate CA"
    commands = (("certificates", "--new-intermediate"), ("up", *WAIT), ("init", "--rotate"), ("up", *WAIT))


class Revoke(Rotate):
    """The server's certificate is revoked, and with it everything that the intermediate CA had signed."""

    name, commands = "revoked certificate", (("certificates", "--revoke"), ("up", *WAIT))


class Expire(OnCertificates):
    """The server's certificate expires in the middle of a run, and then its SuperLink restarts."""

    name = "expired certificate"

    def inject(self, trial: Trial) -> None:
        level, deployment = level_of(trial), level_of(trial).deployment
        lifetime = LIFETIME + timedelta(seconds=level.up_seconds)
        pki.issue_server_certificate(deployment.folder / "secrets", [deployment.hosts[0].address], lifetime)
        deployment.fedsim("up", *WAIT)
        super().inject(trial)

    def strike(self, trial: Trial, deployment: Deployment) -> None:
        certificate = pki.read_certificate(deployment.folder / "secrets" / pki.SERVER)
        time.sleep(max(0.0, (certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds()) + 1)
        kill(deployment.process("server", "superlink"))
        told = deployment.attempt("up", "--wait", "5").stderr
        if "expired" not in told or pki.SERVER not in told:
            trial.problems.append(f"the expired certificate is not named: {told[-300:]}")
        deployment.fedsim("init", "--rotate")
        deployment.fedsim("up", *WAIT)


FAULTS = (Rotate, NewIntermediate, Revoke, Expire)
