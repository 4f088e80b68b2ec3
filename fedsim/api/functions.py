"""`fedsim.run`, `resume`, `sweep` and `load`."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_type_hints

from fedsim.api.callbacks import Step, StepCallback
from fedsim.api.objects import Arrays, named, stored
from fedsim.api.result import Result
from fedsim.api.settings import Settings
from fedsim.config import RunConfig, Scalar, key_of, read
from fedsim.errors import ConfigError, FedsimError
from fedsim.results.observers import Observer, observed_by

if TYPE_CHECKING:
    from fedsim.algorithm import Algorithm
    from fedsim.sweeps.search import Search

Folder = str | os.PathLike[str]


def run(
    algorithm: "str | Algorithm[Any] | None" = None,
    dataset: str | os.PathLike[str] | Arrays | None = None,
    *,
    model: Any = None,
    partition: Any = None,
    engine: str = "ray",
    out: Folder | None = None,
    file: Folder | None = None,
    set: Mapping[str, Any] | None = None,
    on_step: Callable[[Step], object] | None = None,
    callbacks: Sequence[Observer] = (),
    ray_address: str | None = None,
    **settings: Unpack[Settings],
) -> Result:
    """Runs a federation from start to end.

    algorithm  a name, or an `Algorithm`
    dataset    a name, a file, or arrays: (x, y), (x_train, y_train, x_test, y_test), or these by name
    model      a name, or a class or function that makes a torch module from the shape of a sample and the classes
    partition  a name, or a `Partition`
    engine     "ray" or "inline"
    out        the run folder; a new one below runs/ unless given
    file       a TOML file with configuration keys; arguments take precedence over it
    set        keys with a dot: {"partition.alpha": 0.1, "spfl.gamma": 5}
    on_step    called with a `Step` after every server step; a true return value ends the run
    callbacks  such as `EarlyStopping`
    settings   every other configuration key

    Raises ConfigError for a configuration that cannot run, FedsimError if the run fails.
    """
    from fedsim.engine.launch import launch

    _check_mapping("set", set)
    chosen = {"algorithm": algorithm, "dataset": dataset, "model": model, "partition": partition}
    given = {key: value for key, value in chosen.items() if value is not None}
    config = configuration({**given, **settings, **(set or {})}, file)
    with observed_by(_observers(on_step, callbacks)):
        return Result(launch(config.replace(out="" if out is None else os.fspath(out)), engine, ray_address))


def resume(
    folder: Folder,
    *,
    engine: str | None = None,
    on_step: Callable[[Step], object] | None = None,
    callbacks: Sequence[Observer] = (),
    ray_address: str | None = None,
    algorithm: "Algorithm[Any] | None" = None,
    model: Any = None,
    partition: Any = None,
    any_version: bool = False,
) -> Result:
    """Continues an interrupted run; the result is that of an uninterrupted one.

    `engine`: as before unless given. `algorithm`, `model`, `partition`: again the objects that the run was started with.
    Raises ConfigError if the run is finished, if another version of fedsim began it and not `any_version`, or if the
    folder holds none.
    """
    from fedsim.commands.resume import read_resumable
    from fedsim.engine.launch import launch

    for kind, given in (("algorithm", algorithm), ("model", model), ("partition", partition)):
        if given is not None:
            named(kind, given)
    config, previous = read_resumable(Path(folder), any_version)
    with observed_by(_observers(on_step, callbacks)):
        return Result(launch(config, engine or previous, ray_address))


def load(folder: Folder) -> Result:
    """The result of a run from its folder, finished or not. Raises ConfigError if the folder holds no run."""
    return Result(Path(folder))


def sweep(
    file: Folder | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    out: Folder | None = None,
    jobs: int | None = None,
    set: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Result]:
    """Runs every combination of a sweep, several at a time on Ray; finished runs are not repeated.

    file      a sweep file, or the name of a preset; or, instead of it:
    grid      the values of each key that varies: {"algorithm": ["fedavg", my_algorithm], "seed": [0, 1, 2]}
    out       the folder of all runs; runs/ and the sweep's name unless given
    jobs      runs at a time; one per core unless given
    set       keys of every run that have a dot: {"partition.alpha": 0.1}
    settings  other keys of every run

    Returns the results by the name of the run. Raises ConfigError for a sweep that cannot run, FedsimError if runs fail.
    """
    from fedsim.results.record import asked
    from fedsim.sweeps.manifest import PlannedRun, SweepManifest
    from fedsim.sweeps.runner import Cell, ray_session, run_cells
    from fedsim.sweeps.study import run_search

    _check_mapping("set", set)
    _check_mapping("grid", grid)
    home, configs, search = _cells(file, grid, {**settings, **(set or {})})
    home = home if out is None else Path(out)

    def run_all(cells: list[Cell]) -> None:
        run_cells(cells, jobs or os.cpu_count() or 1, lambda: None)

    with ray_session():
        if search is not None:
            configs, _ = run_search(search, configs, home, run_all)
        cells = [Cell(name, config.replace(out=str((home / name).resolve()))) for name, config in configs.items()]
        if grid is not None:
            planned = {name: PlannedRun(asked(config)) for name, config in configs.items()}
            SweepManifest(home.name, runs=planned).write(home)
        run_all(cells)
    if failed := [cell for cell in cells if cell.status == "failed"]:
        raise FedsimError("; ".join(f"{cell.name}: {cell.failure}" for cell in failed))
    return {cell.name: Result(cell.folder) for cell in cells}


def _cells(
    file: Folder | None, grid: Mapping[str, Sequence[Any]] | None, settings: Mapping[str, Any]
) -> "tuple[Path, dict[str, RunConfig], Search | None]":
    """The default folder of a sweep, the configuration of each of its runs, and the search before them."""
    from fedsim.sweeps.sweep_file import grid_cells, read_sweep

    if (file is None) == (grid is None):
        raise ConfigError("a sweep needs either a file or a grid")
    seed = _seed(settings)
    if grid is not None:
        if single := [
            key for key, values in grid.items() if isinstance(values, str) or not isinstance(values, Iterable)
        ]:
            raise ConfigError(f"grid: {single[0]} needs a list of values, not {grid[single[0]]!r}")
        axes = {key_of(key): [_scalar(key_of(key), value, seed) for value in values] for key, values in grid.items()}
        return Path("runs/sweep"), grid_cells(axes, _scalars(settings)), None
    found = read_sweep(os.fspath(file or ""), [f"{key}={value}" for key, value in _scalars(settings).items()])
    return Path("runs") / found.name, found.cells, found.search


def configuration(settings: Mapping[str, Any], file: Folder | None = None) -> RunConfig:
    """The configuration that keyword arguments stand for; objects get a name."""
    pairs = [f"{key}={value}" for key, value in _scalars(settings).items()]
    return read(None if file is None else Path(file), pairs)


def _scalars(settings: Mapping[str, Any]) -> dict[str, Scalar]:
    seed = _seed(settings)
    return {key_of(key): _scalar(key_of(key), value, seed) for key, value in settings.items()}


def _seed(settings: Mapping[str, Any]) -> int:
    """Of the run, for what is drawn before there is a configuration; a wrong one is refused there."""
    given = settings.get("seed", 0)
    return given if isinstance(given, int) else 0


def _check_mapping(name: str, given: Any) -> None:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f'{name} must be a mapping from keys to values, such as {{"lr": ...}}, not {given!r}')


def _scalar(key: str, value: Any, seed: int) -> Scalar:
    """A value as a configuration holds it: names of objects, files of arrays, several values separated by commas."""
    if key == "dataset":
        return stored(value, seed)
    if key in ("algorithm", "model", "partition"):
        return named(key, value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "none" if value is None else value if isinstance(value, bool | int | float | str) else str(value)


def _observers(on_step: Callable[[Step], object] | None, callbacks: Sequence[Observer]) -> list[Observer]:
    return [*callbacks, *([] if on_step is None else [StepCallback(on_step)])]


def _with_keys(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of `run` with every configuration key by name, for notebooks, which complete what it lists."""
    given = inspect.signature(function)
    before = [p for p in given.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    hints = get_type_hints(Settings)
    keys = [
        inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint) for k, hint in hints.items()
    ]
    return given.replace(parameters=[*before, *keys])


run.__signature__ = _with_keys(run)  # type: ignore[attr-defined]
