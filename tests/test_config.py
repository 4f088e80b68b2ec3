import pickle
from pathlib import Path

import pytest

from fedsim import config as configs
from fedsim.errors import ConfigError
from fedsim.sweeps.sweep_file import preset_texts, read_sweep


def test_defaults_are_a_complete_run() -> None:
    assert configs.read(None) == configs.RunConfig()


def test_file_overrides_and_types(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'algorithm = "fedavg-ft"\nrounds = 7\nlr = 1\n'
        'partition = "dirichlet"\n"partition.alpha" = 0.1\n[fedavg-ft]\nepochs = 3\n'
    )
    config = configs.read(path, ["rounds=9", "clients = 5"])
    assert (config.rounds, config.clients, config.lr) == (9, 5, 1.0)
    assert isinstance(config.lr, float)
    assert config.params("fedavg-ft").epochs == 3
    assert config.params("partition").alpha == 0.1


def test_flat_and_back() -> None:
    config = configs.read(
        None, ["algorithm=fedavg-ft", "fedavg-ft.epochs=2", "partition=classes", "partition.classes=4"]
    )
    assert configs.parse(config.flat()) == config


def test_fine_tuning_of_the_run_replaces_that_of_the_algorithm() -> None:
    def tuning(*pairs: str) -> configs.FineTuning:
        found: configs.FineTuning = configs.read(None, pairs).params("finetune")
        return found

    assert tuning() == configs.FineTuning(0)
    assert tuning("finetune=local", "finetune.lr=0.1") == configs.FineTuning(None, lr=0.1)
    assert tuning("algorithm=fedavg-ft") == configs.FineTuning(None)
    assert tuning("algorithm=fedavg-ft", "fedavg-ft.epochs=3", "finetune.part=head") == configs.FineTuning(
        3, part="head"
    )
    assert tuning("algorithm=fedavg-ft", "fedavg-ft.epochs=3", "finetune=0") == configs.FineTuning(0)
    assert tuning("algorithm=fedupdate", "finetune=2") == configs.FineTuning(2, "steps")
    config = configs.read(None, ["finetune=3", "finetune.unit=steps", "algorithm=fedadam", "server-optimizer.lr=0.5"])
    assert configs.parse(config.flat()) == config


def test_flower_run_config_carries_further_pairs() -> None:
    config = configs.from_run_config({"rounds": 3, "set": "partition=classes partition.classes=4 lr=0.5"})
    assert (config.rounds, config.lr, config.params("partition").classes) == (3, 0.5, 4)


def test_parameters_of_another_algorithm_may_stand_there() -> None:
    assert configs.read(None, ["algorithm=fedavg", "fedavg-ft.epochs=2"]).algorithm == "fedavg"


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("round=3", "'rounds'"),
        ("algorithm=fedavgg", "fedavg-ft"),
        ("model=vgg", "mlp"),
        ("partition=dirichlets", "dirichlet"),
        ("partition.klasses=2", "partition.classes"),
        ("fedavg-ft.epoch=2", "fedavg-ft.epochs"),
        ("fedprogs.mu=2", "section"),
        ("clients=0", "clients must be at least 1, not 0"),
        ("clients=two", "clients must be of type int, not 'two'"),
        ("clients=2.5", "clients must be of type int"),
        ("participation=0", "participation"),
        ("participation=1.1", "participation"),
        ("lr=-1", "lr must be above 0"),
        ("lr=nan", "lr must be above 0"),
        ("momentum=nan", "momentum must be at least 0"),
        ("seed=-1", "seed"),
        ("device=gpu", "cuda:N"),
        ("device=cpu:1", "cuda:N"),
        ("clock=sundial", "wall"),
        ("inputs=grey", "unknown inputs 'grey'.*normalized, raw"),
        ("batches=sorted", "unknown batches 'sorted'.*in-order, shuffled"),
        ("pace=presto", "synchronous"),
        ("stragglers=tired", "none"),
        ("finetune=long", "unknown finetune 'long'.*Choices: a number of epochs, auto, local"),
        ("finetune=-1", "unknown finetune '-1'"),
        ("finetune.unit=rounds", "unknown finetune.unit 'rounds'.*epochs, steps"),
        ("finetune.part=neck", "unknown finetune.part 'neck'.*all, base, head"),
        ("finetune.length=3", "unknown config key 'finetune.length'"),
        ("attack.ratio=0.2", "unknown config key 'attack.ratio': the chosen attack has no parameters"),
        ("resume=perhaps", "resume must be of type bool"),
        ("rounds", "key=value"),
        ("fedavg-ft.epochs=-1", "at least 0"),
    ],
)
def test_nonsense_is_refused_by_name(pair: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("(", r"\(")) as caught:
        configs.read(None, ["partition=classes", pair])
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        configs.read(tmp_path / "missing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("rounds = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        configs.read(broken)


@pytest.mark.parametrize("name", sorted(preset_texts()))
def test_every_preset_can_be_read(name: str) -> None:
    preset = read_sweep(name)
    assert preset.about
    assert preset.cells


def test_the_hash_of_a_configuration_does_not_travel_to_other_processes() -> None:
    """Hashes of texts differ between processes: a worker that took over the driver's would not find equal ones."""
    config = configs.read(None, ["algorithm=ditto", "ditto.lam=0.5"])
    hash(config)
    copy = pickle.loads(pickle.dumps(config))
    assert vars(copy).keys() < vars(config).keys()
    assert (copy, hash(copy)) == (config, hash(config))
