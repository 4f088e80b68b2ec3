"""What a node lets the server do: run the installed fedsim, as far as the site's policy allows; everything else is refused.

No code that arrives is ever run. The bundle of a run must be the constant one of the installed version (by hash), the names
in its configuration must be fedsim's own or of plug-ins that the site has listed, and the configuration must follow
`policy.toml`. The policy is read for every message, so a change holds at once. A refusal is the reply to the message, with
its reason; it and every job are in the node's audit log.
"""

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

from flwr.app import Context, Message

from fedsim.client.app import LABEL_COUNTS, app
from fedsim.config import RunConfig, Scalar, flat_run_config, from_run_config
from fedsim.deploy import audit, machine_config, policy
from fedsim.deploy.audit import AuditLog
from fedsim.deploy.policy import Policy, Refused
from fedsim.errors import FedsimError
from fedsim.flower.app_bundle import bundle_hash, check_bundle
from fedsim.transport import wire

JOBS_TODAY = "jobs-today.json"  # how many training jobs were done today, if the policy limits them


class Admission:
    """The ClientApp of a node, behind its policy; `home` is the node's home folder, `bundle` what the server sent."""

    def __init__(
        self,
        home: Path,
        bundle: bytes,
        limited: Callable[[float], AbstractContextManager[None]] = lambda seconds: nullcontext(),
    ) -> None:
        """`limited`: what a job happens in, with the seconds that it may take."""
        self._home, self._bundle, self._limited = home, bundle, limited
        self._audit = AuditLog(home / audit.FILE)

    def __call__(self, message: Message, context: Context) -> Message:
        """The ClientApp's reply; raises Refused, which Flower sends to the server."""
        run, kind = str(message.metadata.run_id), message.metadata.message_type
        try:
            about = self._check(message, context)
        except FedsimError as error:
            refusal: dict[str, Any] = {"run": run, "message": kind, "reason": str(error)}
            if {
                **self._audit.last(),
                **refusal,
                "what": "refused",
            } != self._audit.last():  # a repeated one is told once
                self._audit.append("refused", **refusal)
            raise Refused(f"node {machine_config.read_node(self._home).name} refuses this: {error}") from error
        if kind == wire.ALIVE:
            return app(message, context)
        if self._audit.last().get("run") != run:
            self._audit.append("run", run=run, bundle=bundle_hash(self._bundle), settings=_settings(context))
        about |= {"run": run, "message": kind}
        try:
            with self._limited(self._seconds(context)):
                reply = app(message, context)
        except Exception as error:
            self._audit.append("message", **about, error=f"{type(error).__name__}: {error}")
            raise
        self._audit.append("message", durable=False, **about, sent=_bytes(reply))
        return reply

    def _seconds(self, context: Context) -> float:
        """The server waits no longer than `timeout`, and the site may allow less."""
        return min(from_run_config(context.run_config).timeout, policy.read(self._home).max_seconds_per_job or inf)

    def _check(self, message: Message, context: Context) -> dict[str, Any]:
        """Raises FedsimError unless everything is allowed; returns what to note about the message."""
        check_bundle(self._bundle)
        rules, settings = policy.read(self._home), _settings(context)
        policy.check_plugins(rules, settings)
        config, own_data = from_run_config(context.run_config), "data" in context.node_config
        now = datetime.now()
        policy.check(rules, config, own_data, now)
        tells = rules.tells_label_counts(own_data)
        context.node_config = {**context.node_config, LABEL_COUNTS: tells}
        if message.metadata.message_type != wire.TRAIN:
            return {}
        return {"step": self._check_job(message, config, rules, now)}

    def _check_job(self, message: Message, config: RunConfig, rules: Policy, now: datetime) -> int:
        step = wire.unpack_job(message).step
        if step >= config.rounds:
            raise Refused(f"round {step + 1} of a run of {config.rounds} rounds")
        if rules.max_jobs_per_day is not None:
            _count_job(self._home / JOBS_TODAY, f"{now:%Y-%m-%d}", rules.max_jobs_per_day)
        return step


def _count_job(path: Path, today: str, most: int) -> None:
    """Counts a job of today; raises Refused if that is one too many."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            found = json.load(file)
        except ValueError:  # a new file, or a crash while it was written
            found = {}
        jobs = int(found.get("jobs", 0)) if found.get("day") == today else 0
        if jobs >= most:
            raise Refused(f"{jobs} training jobs were done today, and the site allows {most} a day")
        file.seek(0)
        file.write(json.dumps({"day": today, "jobs": jobs + 1}))
        file.truncate()


def _settings(context: Context) -> Mapping[str, Scalar]:
    return flat_run_config(context.run_config)


def _bytes(reply: Message) -> int:
    return sum(len(array.data) for record in reply.content.array_records.values() for array in record.values())
