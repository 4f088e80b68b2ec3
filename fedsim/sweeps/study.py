"""Runs a search: Optuna chooses candidates, cells of the sweep train them, and the best one is taken.

All that was tried is in the journal `search/optuna.journal` of the sweep, a storage of Optuna with a study per setting.
Only the sweep writes it, so what was interrupted goes on. Candidates are chosen in batches, each with a seed of its own,
from what was known when the batch began, and stopped early by comparison with that: a search repeats exactly, with any
number of jobs. Where smaller is better, the journal holds values with the sign changed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedsim.config import RunConfig, Scalar, parse
from fedsim.errors import ConfigError
from fedsim.results.folder_lock import locked
from fedsim.results.observers import Observer
from fedsim.rng import stream
from fedsim.sweeps.manifest import SearchResult
from fedsim.sweeps.runner import Cell
from fedsim.sweeps.search import Choices, Range, Search, ends

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial

    from fedsim.results.record import Record

FOLDER, JOURNAL = "search", "optuna.journal"
DEFINITION, RETRY = "search", "retry"  # attributes of a study, and of a trial that repeats a failed one


def run_search(
    search: Search,
    configs: Mapping[str, RunConfig],
    home: Path,
    run: Callable[[list[Cell]], object],
    retry: bool = False,
) -> tuple[dict[str, RunConfig], list[SearchResult]]:
    """Every configuration with the values of its best candidate, and what was tried. Runs that differ in the seed share
    one search, in the name of the first. `run` runs cells; with `retry`, candidates that failed are tried again.

    Raises ConfigError if a key is not valid, if `home` holds another search, or if no candidate finished.
    """
    settings: dict[RunConfig, list[str]] = {}
    for name, config in configs.items():
        settings.setdefault(config.replace(seed=0), []).append(name)
    firsts = [names[0] for names in settings.values()]
    for name in firsts:
        search.check(configs[name])
    folder = home / FOLDER
    with locked(folder), _journal(folder / JOURNAL) as storage:
        studies = [Candidates(search, name, configs[name], folder, storage) for name in firsts]
        if retry:
            for each in studies:
                each.repeat_failed()
        while any(batches := [each.next_batch() for each in studies]):
            run([cell for batch in batches for cell in batch.values()])
            for each, batch in zip(studies, batches, strict=True):
                each.tell(batch)
        results = [each.result() for each in studies]
    best = {name: each.best for each, names in zip(studies, settings.values(), strict=True) for name in names}
    return {name: parse({**config.flat(), **best[name]}) for name, config in configs.items()}, results


class Candidates:
    """The candidates of one setting: the trials of a study."""

    def __init__(self, search: Search, name: str, config: RunConfig, folder: Path, storage: "BaseStorage") -> None:
        import optuna

        self._search, self._name, self._config, self._folder = search, name, config, folder
        self._study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
        wanted, before = search.definition, self._study.user_attrs.get(DEFINITION)
        if before is None:
            self._study.set_user_attr(DEFINITION, wanted)
        elif json.loads(json.dumps(wanted)) != before:
            raise ConfigError(f"{folder} holds another search: choose another --out, or remove it")
        for trial in self._trials("RUNNING"):
            self._choose(optuna.trial.Trial(self._study, trial._trial_id))  # it may have been interrupted in that

    def repeat_failed(self) -> None:
        """Makes failed candidates part of the next batch."""
        import optuna

        newest = {self._cell_name(trial): trial for trial in self._trials()}
        for trial in newest.values():
            if trial.state == optuna.trial.TrialState.FAIL:
                self._study.enqueue_trial(trial.params, user_attrs={RETRY: True})
                self._ask()

    def next_batch(self) -> dict[int, Cell]:
        """The cells of the candidates that are to run now, by the number of the trial; none when the search is over."""
        asked = sum(RETRY not in trial.user_attrs for trial in self._trials("RUNNING", "COMPLETE", "PRUNED", "FAIL"))
        together, begun = self._search.together, self._trials("RUNNING")
        complete = begun and asked % together == 0
        for _ in range(0 if complete else min(together - asked % together, self._search.count - asked)):
            if self._search.grid and not self._trials("WAITING"):
                self._study.enqueue_trial(self._search.grid[asked])
            self._ask()
            asked += 1
        observer = self._observer()
        return {trial.number: self._cell(trial, observer) for trial in self._trials("RUNNING")}

    def tell(self, batch: Mapping[int, Cell]) -> None:
        """Records what the cells measured, in the order of the trials."""
        from optuna.trial import TrialState

        for number, cell in sorted(batch.items()):
            curve = _validation_curve(cell)
            trial = self._study.trials[number]
            for step, value in curve:
                self._study._storage.set_trial_intermediate_value(trial._trial_id, step, value)
            if not curve:
                self._study.tell(number, state=TrialState.FAIL)
            elif curve[-1][0] < cell.config.rounds:
                self._study.tell(number, state=TrialState.PRUNED)
            else:
                self._study.tell(number, max(value for _, value in curve))

    def result(self) -> SearchResult:
        """All candidates; of those that were repeated, the newest."""
        newest = {self._cell_name(trial): trial for trial in self._trials()}
        trials = [newest[self._cell_name(trial)] for trial in self._trials() if RETRY not in trial.user_attrs]
        states = [_STATES[trial.state.name] for trial in trials]
        metric = next((self._cell(t).metric for t in trials if t.state.name != "FAIL"), self._cell(trials[0]).metric)
        sign = 1 if metric.higher_is_better else -1
        scores = [sign * max(t.intermediate_values.values()) if t.intermediate_values else None for t in trials]
        rounds = [max(trial.intermediate_values, default=0) for trial in trials]
        points = [self._point(trial) for trial in trials]
        return SearchResult(self._name, points, scores, metric.name, metric.direction, states, rounds)

    @property
    def best(self) -> dict[str, Scalar]:
        """The values of the best candidate that was not stopped, the first of equal ones."""
        finished = self._trials("COMPLETE")
        if not finished:
            raise ConfigError(f"no candidate of the search for {self._name} finished: there is nothing to choose from")
        return self._point(max(finished, key=lambda trial: (trial.value, -trial.number)))

    def _ask(self) -> None:
        """A new trial, or one that waits."""
        from optuna.samplers import RandomSampler, TPESampler

        seed = int(stream(self._search.seed, len(self._trials()), "search").integers(2**31))
        startup = self._search.startup
        random = self._search.sampler == "random" or bool(self._search.grid)
        self._study.sampler = RandomSampler(seed) if random else TPESampler(n_startup_trials=startup, seed=seed)
        self._choose(self._study.ask())

    def _choose(self, trial: "Trial") -> None:
        for key, values in self._search.space:
            _suggest(trial, key, values)

    def _trials(self, *states: str) -> "list[FrozenTrial]":
        """Those in one of the states, or all."""
        found = self._study.get_trials(deepcopy=False)
        return [trial for trial in found if not states or trial.state.name in states]

    def _point(self, trial: "FrozenTrial") -> dict[str, Scalar]:
        return {key: trial.params[key] for key, _ in self._search.space}

    def _cell_name(self, trial: "FrozenTrial") -> str:
        """Equal candidates are one run."""
        return f"{self._name}-{next(t.number for t in self._trials() if t.params == trial.params)}"

    def _cell(self, trial: "FrozenTrial", observer: Observer | None = None) -> Cell:
        name = self._cell_name(trial)
        config = self._search.candidate(self._config, self._point(trial))
        return Cell(name, config.replace(out=str((self._folder / name).resolve())), observer=observer)

    def _observer(self) -> Observer | None:
        if not self._search.prunes:
            return None
        return Pruning(self._trials("COMPLETE"), max(1, self._search.startup), self._search.warmup)


class Pruning(Observer):
    """Stops a candidate whose best value is worse than the median, in the same round, of the candidates `completed`."""

    def __init__(self, completed: "Sequence[FrozenTrial]", startup: int, warmup: int) -> None:
        self._completed, self._startup, self._warmup = completed, startup, warmup

    def begin(self, record: "Record") -> None:
        import optuna

        _quiet()
        pruner = optuna.pruners.MedianPruner(self._startup, self._warmup)
        study = optuna.create_study(direction="maximize", pruner=pruner)
        study.add_trials(self._completed)
        self._trial, self._reported = study.ask(), 0
        name, direction = next(iter(record.metrics.items()))
        self._curve = record.all_curves[name]["personal"]
        self._sign = 1.0 if direction == "max" else -1.0

    def event(self, event: Mapping[str, Any]) -> bool:
        new = self._curve.points[self._reported :]
        self._reported += len(new)
        for step, value in new:
            if isfinite(value):
                self._trial.report(self._sign * value, step)
        return bool(new) and self._trial.should_prune()


_STATES: Mapping[str, Literal["finished", "stopped", "failed"]] = {
    "COMPLETE": "finished",
    "PRUNED": "stopped",
    "FAIL": "failed",
}


def _suggest(trial: "Trial", key: str, values: Range | Choices) -> None:
    if not isinstance(values, Range):
        trial.suggest_categorical(key, values)
    elif values.int:
        low, high = (int(end) for end in ends(values))
        trial.suggest_int(key, low, high, step=int(values.step or 1), log=values.log)
    else:
        trial.suggest_float(key, values.low, values.high, step=values.step, log=values.log)


def _validation_curve(cell: Cell) -> list[tuple[int, float]]:
    """The mean of the main metric on validation data after each evaluated round, larger is better; empty if the
    candidate failed, or diverged from the start."""
    from fedsim.report.runs import RunResult

    if cell.status != "finished":
        return []
    series, sign = RunResult.load(cell.folder).series("personal"), 1 if cell.metric.higher_is_better else -1
    curve = [(int(r), sign * float(value)) for r, value in zip(series.rounds, series.mean, strict=True)]
    return [(number, value) for number, value in curve if isfinite(value)]


@contextmanager
def _journal(path: Path) -> "Iterator[BaseStorage]":
    """Optuna's storage in this file, whose folder is locked. A line that a killed sweep left unfinished is removed, and
    so is the lock of Optuna that it held."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    _quiet()
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
    yield JournalStorage(JournalFileBackend(str(path)))


def _quiet() -> None:
    """Optuna tells every trial unless told not to."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
