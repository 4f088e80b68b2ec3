"""Flower's SuperLink behind the keys of operators; takes the options of `flower-superlink`.

    python -m fedsim.deploy.superlink OPTIONS       in the server's home folder

Every call of the Control API must bring the token of an operator whose role allows it (see `fedsim.deploy.operators`), and
the only runs that can be started are those of fedsim's constant bundle. Calls and refusals are in the server's audit log.
"""

import time
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from fedsim.deploy import audit, operators
from fedsim.deploy.audit import AuditLog
from fedsim.deploy.machine_config import read_server
from fedsim.deploy.operators import SERVICE, SERVICE_KEY, VERBS, Claims, Operator, TokenRefused
from fedsim.errors import FedsimError
from fedsim.flower.superlink import about_call, run_superlink, started_run

CHANGES = ("start-run", "stop-run", "register-node", "unregister-node")  # calls whose every use is noted
QUIET = 1.0  # seconds in which at most one refusal is noted
LONGEST = 200  # characters of a refused call in the log
K = TypeVar("K")


class OperatorGuard:
    """Checks the calls of the Control API, and notes them."""

    def __init__(self, home: Path) -> None:
        self._home, self._config = home, read_server(home)
        self._audit, self._lock = AuditLog(home / audit.FILE), Lock()
        self._used, self._noted = dict[str, float](), dict[tuple[str, str], float]()  # tokens -> when they expire
        self._last_refusal, self._suppressed = -QUIET, 0

    def identify(self, method: str, token: str) -> Claims:
        """What the token says; raises FedsimError if it or the operator's role does not allow the call."""
        try:
            known = self._operators()
            claims = operators.check_token(token, known, self._config.name)
            if method not in known[claims.operator].methods:
                raise TokenRefused(
                    f"{claims.operator} has the role {known[claims.operator].role}, and may not {method}"
                )
            if method not in VERBS.get(claims.verb, ()):
                raise TokenRefused(f"the token is for `{claims.verb}`, not for {method}")
        except FedsimError as error:
            self._refused("nobody", method, str(error))
            raise
        return claims

    def admit(self, caller: Claims, method: str, content: bytes) -> None:
        """Notes the call; raises FedsimError if it asks for something else than was signed, or for foreign code."""
        try:
            about = about_call(method, content)
            if method == "start-run":
                self._check_start(caller, content)
        except FedsimError as error:
            self._refused(caller.operator, method, str(error))
            raise
        with self._lock:
            first = self._remember(self._noted, (caller.id, method), caller.expires)
        if method in CHANGES or first:  # commands that wait ask again and again
            self._audit.append(method, operator=caller.operator, **about)

    def answered(self, caller: Claims, method: str, status: int, content: bytes) -> None:
        if method in CHANGES:
            run: dict[str, Any] = (
                {"run": started_run(content)} if method == "start-run" and status == HTTPStatus.OK else {}
            )
            self._audit.append(f"{method} answered", operator=caller.operator, status=status, **run)

    def _check_start(self, caller: Claims, content: bytes) -> None:
        if sha256(content).hexdigest() != caller.digest:
            raise TokenRefused("the run is not the one that was signed")
        with self._lock:
            if not self._remember(self._used, caller.id, caller.expires):
                raise TokenRefused("the token was used before")

    def _remember(self, known: dict[K, float], key: K, expires: float) -> bool:
        """Whether this is new; forgets what has expired."""
        new = key not in known
        known[key] = expires
        for old in [each for each, until in known.items() if until + 2 * operators.CLOCKS < time.time()]:
            del known[old]
        return new

    def _refused(self, who: str, method: str, reason: str) -> None:
        """Notes a refusal, but not all of somebody who tries a thousand times a second."""
        with self._lock:
            self._suppressed += 1
            if time.monotonic() - self._last_refusal < QUIET:
                return
            others, self._suppressed, self._last_refusal = self._suppressed - 1, 0, time.monotonic()
        more: dict[str, Any] = {"others": others} if others else {}
        self._audit.append("refused", operator=who, call=method[:LONGEST], reason=reason[:LONGEST], **more)

    def _operators(self) -> dict[str, Operator]:
        """As the file says now, and the server itself."""
        service = Operator(SERVICE, SERVICE, operators.public_key(self._home / SERVICE_KEY))
        return {**operators.from_json(self._config.operators.read_text()), SERVICE: service}


if __name__ == "__main__":
    run_superlink(OperatorGuard(Path.cwd()))
