"""What a client keeps on its node's own disk (node config `state-dir`), so that a restarted node goes on with it:

    STATE/RUN/client-0007/step-000012-0-0.npz   its state after job 0 of step 12, when the run had been resumed 0 times
    STATE/RUN/client-0007.safetensors, .md      its personal model at the end of the run, and a card that says what it is

RUN is the identity of the run. Four versions of a state are enough: the newest, the one before it, with which the last job
is done again if its answer was lost, and those that resuming from one of the server's two checkpoints would need.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fedsim.errors import DamagedError, FedsimError, StorageError
from fedsim.files import make_folder, read_npz, remove_leftovers, write_bytes, write_npz, write_text
from fedsim.payload import ClientState, Job, RunIdentity
from fedsim.results import checkpoint as checkpoints

NAME = re.compile(r"step-(\d+)-(\d+)-(\d+)\.npz")


class Version(NamedTuple):
    """One state of a state; ordered by age."""

    step: int
    job_index: int  # of the client's jobs in that step
    attempt: int  # how often the run had been resumed

    @property
    def name(self) -> str:
        return f"step-{self.step:06d}-{self.job_index}-{self.attempt}.npz"


class StateStore:
    """One client's place on its node."""

    def __init__(self, root: Path, run: RunIdentity, client: int) -> None:
        self._run, self._client = run, client
        self._base = root.expanduser() / run.id / f"client-{client:04d}"
        self.model = self._base.with_suffix(".safetensors")

    def read(self, job: Job | None = None) -> ClientState:
        """The newest state that is part of the run's history, or the one `job` starts from, even if it was done before; an
        empty one if there is none."""
        found = [v for v in self._versions() if job is None or (v.step, v.job_index) < (job.step, job.job_index)]
        if not found:
            return ClientState()
        path = self._base / max(found).name
        try:
            state: ClientState = checkpoints.undump(read_npz(path, sealed=True), (ClientState,))
        except (OSError, DamagedError, ValueError) as error:
            raise FedsimError(f"client {self._client} cannot read what it keeps in {path}: {error}") from error
        return state

    def write(self, job: Job, state: ClientState) -> None:
        """Keeps the state after a job, and drops versions that nobody can ask for any more."""
        written = Version(job.step, job.job_index, len(self._run.resumed))
        with self._blames():
            write_npz(self._base / written.name, checkpoints.dump(state))
            versions = self._versions()
            kept = {written, max((v for v in versions if v < written), default=written)}
            kept |= {max((v for v in versions if v.step < step), default=written) for step in self._run.saved}
            for path in self._base.iterdir():
                found = _version(path)  # a newer attempt: this job is a relic of a stopped run
                if found is not None and found not in kept and found.attempt <= written.attempt:
                    path.unlink()
            remove_leftovers(self._base)

    def keep(self, tensors: Mapping[str, NDArray[Any]], facts: Mapping[str, str], card: str) -> None:
        """The personal model by tensor name, with its card beside it."""
        from safetensors.numpy import save

        with self._blames():
            make_folder(self.model.parent)
            write_bytes(self.model, save(dict(tensors), dict(facts)))
            write_text(self.model.with_suffix(".md"), card)

    def _versions(self) -> list[Version]:
        found = map(_version, self._base.iterdir()) if self._base.exists() else ()
        return [v for v in found if v is not None and self._run.holds(v.step, v.attempt)]

    @contextmanager
    def _blames(self) -> Iterator[None]:
        try:
            yield
        except (OSError, StorageError) as error:
            raise FedsimError(
                f"client {self._client} cannot keep its state: {error}. Make room or choose another state-dir"
            ) from error


def _version(path: Path) -> Version | None:
    match = NAME.fullmatch(path.name)
    return Version(*map(int, match.groups())) if match else None
