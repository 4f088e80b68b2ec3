"""A site's policy: what it allows, what it refuses with which words, and files that are no policy."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fedsim import config as configs
from fedsim.deploy import policy
from fedsim.deploy.policy import Policy, Refused
from fedsim.errors import ConfigError

NOON = datetime(2030, 5, 6, 12, 0)


def allowed(text: str, *settings: str, own_data: bool = False, now: datetime = NOON, folder: Path) -> str:
    """The words of the refusal; empty if the policy allows a run with these settings."""
    (folder / policy.FILE).write_text(text)
    rules = policy.read(folder)
    policy.check_names(rules)
    try:
        policy.check(rules, configs.read(None, settings), own_data, now)
    except Refused as refusal:
        return str(refusal)
    return ""


def test_without_a_file_every_setting_is_allowed(tmp_path: Path) -> None:
    rules = policy.read(tmp_path)
    assert rules == Policy()
    assert rules.summary() == {}
    policy.check(rules, configs.read(None, ["algorithm=spfl", "rounds=9999"]), False, NOON)
    assert rules.tells_label_counts(own_data=False)
    assert not rules.tells_label_counts(own_data=True), "of its own data a silo tells them only if its policy says so"


@pytest.mark.parametrize(
    ("text", "setting", "told"),
    [
        ('algorithms = ["fedavg", "fedprox"]', "algorithm=spfl", "'spfl' is not allowed. Allowed: fedavg, fedprox"),
        ('datasets = ["digits"]', "dataset=mnist", "dataset 'mnist' is not allowed. Allowed: digits"),
        ('datasets = ["digits"]', "data-root=/etc", "data-root='/etc' is not allowed"),
        ("max-rounds = 5", "rounds=6", "rounds=6 is too much: at most 5 are allowed"),
        ("min-clients = 11", "clients=10", "clients=10 is too few: at least 11 must take part"),
        ("[require]\nfilters = { includes = ['clip'] }", "filters=", "the site requires filters includes clip"),
        ("[require]\nmomentum = 0.9", "momentum=0.5", "momentum=0.5 is not allowed: the site requires momentum is 0.9"),
        ("[require]\nmodel = ['mlp', 'mlr']", "model=cnn", "the site requires model is mlp or mlr"),
        ("[require]\nlr = { at-most = 0.1, at-least = 0.01 }", "lr=0.2", "the site requires lr at-most 0.1"),
        ("[require]\nlr = { at-most = 0.1, at-least = 0.01 }", "lr=0.001", "the site requires lr at-least 0.01"),
        ("[require]\nresume = true", "resume=false", "resume=false is not allowed: the site requires resume is true"),
        ("[forbid]\nattack = ['noise', 'backdoor']", "attack=noise", "the site forbids attack is noise or backdoor"),
        ("[forbid]\nparticipation = { at-most = 0.5 }", "participation=0.5", "the site forbids participation at-most"),
    ],
)
def test_each_rule_refuses_in_its_own_words_and_allows_the_rest(
    text: str, setting: str, told: str, tmp_path: Path
) -> None:
    assert told in allowed(text, setting, folder=tmp_path)
    good = ("momentum=0.9", "resume=true", "filters=clip", "rounds=5", "clients=11")  # and defaults
    assert allowed(text, *good, folder=tmp_path) == ""


def test_parameters_count_with_their_defaults(tmp_path: Path) -> None:
    text = "[require]\nfilters = { includes = ['clip'] }\nclip.norm = { at-most = 1.0 }"
    assert allowed(text, "filters=clip", folder=tmp_path) == ""
    assert "clip.norm=2.5 is not allowed" in allowed(text, "filters=clip", "clip.norm=2.5", folder=tmp_path)
    assert allowed('[forbid]\n"spfl.gamma" = 3', "algorithm=fedavg", folder=tmp_path) == ""
    needs = "[require]\npartition.alpha = { at-least = 0.5 }"
    assert allowed(needs, "partition=dirichlet", "partition.alpha=1", folder=tmp_path) == ""
    assert "partition.alpha=None is not allowed" in allowed(needs, "partition=iid", folder=tmp_path)


def test_own_data_has_a_name_of_its_own(tmp_path: Path) -> None:
    text = 'datasets = ["own"]'
    assert allowed(text, "partition=own", own_data=True, folder=tmp_path) == ""
    assert "dataset 'digits' is not allowed. Allowed: own" in allowed(text, folder=tmp_path)
    assert "dataset 'digits' is not allowed" in allowed(text, "public=20", own_data=True, folder=tmp_path)


@pytest.mark.parametrize(
    ("hours", "moment", "allows"),
    [
        ("08:00-17:00", (12, 0), True),
        ("08:00-17:00", (17, 0), False),
        ("08:00-17:00", (7, 59), False),
        ("20:00-06:00", (23, 59), True),
        ("20:00-06:00", (5, 59), True),
        ("20:00-06:00", (12, 0), False),
        ("00:00-00:00", (12, 0), True),
    ],
)
def test_hours_may_go_past_midnight(hours: str, moment: tuple[int, int], allows: bool, tmp_path: Path) -> None:
    told = allowed(f'hours = ["{hours}"]', now=NOON.replace(hour=moment[0], minute=moment[1]), folder=tmp_path)
    assert told == ("" if allows else f"it is {moment[0]:02d}:{moment[1]:02d} here, and the site works {hours}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "algorithm = ['fedavg']",
            r"unknown key 'algorithm'. Did you mean 'algorithms'\? Choices: algorithms, datasets",
        ),
        ("algorithms = ['fedawg']", r"unknown algorithm 'fedawg'. Did you mean 'fedavg'"),
        ("datasets = ['minst']", r"unknown dataset 'minst'. Did you mean 'mnist'"),
        ("max-rounds = 0", "max-rounds must be at least 1"),
        ("max-rounds = 'many'", "max-rounds must be of type int, not 'many'"),
        ("label-counts = 'perhaps'", "label-counts must be of type bool"),
        ("hours = ['9-17']", "hours must be periods such as '20:00-06:00', not '9-17'"),
        ("plugins = ['???']", r"plugins must name packages such as 'my-fedprox==1.0', not '\?\?\?'"),
        ("require = 3", "require must be a table of settings, not 3"),
        ("[require]\nlr = { at-most = 'x' }", "require.lr: at-most needs a number, not 'x'"),
        ("[require]\nlr = { at-mots = 1 }", "unknown section 'lr'"),
        ("[require]\nfiltres = 'clip'", r"unknown setting 'filtres'. Did you mean 'filters'"),
        ("[forbid]\nclip.nrom = 1", r"unknown setting 'clip.nrom'. Did you mean 'clip.norm'"),
        ("[require]\nlr = []", "require.lr must be a value, a list of values, or one of at-least, at-most, includes"),
        ("algorithms = { a = 1 }", "algorithms must be a value or a list of values"),
        ("= 3", "is not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_by_name_with_the_choices(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / policy.FILE).write_text(text)
    with pytest.raises(ConfigError, match=told):
        policy.check_names(policy.read(tmp_path))


def test_a_file_that_cannot_be_read_is_not_taken_for_no_file(tmp_path: Path) -> None:
    (tmp_path / policy.FILE).mkdir()
    with pytest.raises(ConfigError, match=r"cannot read .*policy\.toml"):
        policy.read(tmp_path)
    (tmp_path / "latin").mkdir()
    (tmp_path / "latin" / policy.FILE).write_bytes(b"algorithms = ['\xff']")
    with pytest.raises(ConfigError, match=r"cannot read .*policy\.toml"):
        policy.read(tmp_path / "latin")


class Package:
    """An installed distribution."""

    name, version = "My_FedProx", "1.2"


class Point:
    """Its entry point, as `importlib.metadata` gives it."""

    name, value, dist = "my-fedprox", "my_fedprox:MY", Package


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed plug-in; an algorithm, a filter and a model of the same name."""

    def points(group: str, name: str) -> list[Any]:
        kinds = ("fedsim.algorithms", "fedsim.filters", "fedsim.models")
        return [Point] if group in kinds and name == Point.name else []

    monkeypatch.setattr(policy, "entry_points", points)


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "my-fedprox"},
        {"my-fedprox.mu": 1},
        {"filters": "clip, my-fedprox"},
        {"model": "mlp,my-fedprox"},
        {"model.3": "my-fedprox"},
    ],
)
@pytest.mark.usefixtures("plugin")
def test_a_plugin_runs_only_if_the_site_has_listed_its_package(settings: dict[str, Any]) -> None:
    told = r"'my-fedprox' is a plug-in of the package My_FedProx 1\.2, which the site has not listed"
    for listed in ((), ("other",), ("my-fedprox==1.3",)):
        with pytest.raises(Refused, match=told):
            policy.check_plugins(Policy(plugins=listed), settings)
    for listed in (("my-fedprox",), ("other", "my.fedprox==1.2"), ("my-fedprox>=1",)):
        policy.check_plugins(Policy(plugins=listed), settings)


def test_what_fedsim_brings_itself_is_no_plugin() -> None:
    policy.check_plugins(Policy(), configs.read(None, ["algorithm=spfl", "filters=clip", "spfl.gamma=2"]).flat())


def test_entry_points_are_read_from_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "my_model-3.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-model\nVersion: 3\n")
    (about / "entry_points.txt").write_text("[fedsim.models]\nmine = my_model:MINE\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Refused, match=r"model 'mine' is a plug-in of the package my-model 3"):
        policy.check_plugins(Policy(), {"model": "mine"})
    policy.check_plugins(Policy(plugins=("my-model==3",)), {"model": "mine"})


@pytest.mark.parametrize(
    "settings", [{"model": "mlp, yaml:Loader"}, {"model.3": "yaml:Loader"}, {"fml.shared": "yaml:Loader"}]
)
def test_a_class_by_its_place_runs_only_if_the_site_has_listed_its_package(settings: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=r"yaml:Loader is a class of PyYAML, which the site has not listed"):
        policy.check_plugins(Policy(plugins=("pyyaml<1",)), settings)
    policy.check_plugins(Policy(plugins=("pyyaml",)), settings)
    with pytest.raises(Refused, match="os:system is a class of no installed package"):
        policy.check_plugins(Policy(plugins=("pyyaml",)), {"model": "os:system"})


def test_values_with_a_colon_are_no_places() -> None:
    keys = {"fedamp.lam": "1:0.5:3", "lr-schedule": "0.5:10", "device": "cuda:0", "dataset": "hf:owner"}
    policy.check_plugins(Policy(), keys)


def test_the_summary_lists_what_is_restricted(tmp_path: Path) -> None:
    (tmp_path / policy.FILE).write_text("max-rounds = 5\nlabel-counts = false\n[forbid]\nattack = ['noise', 'nan']")
    assert policy.read(tmp_path).summary() == {
        "max-rounds": 5,
        "label-counts": False,
        "forbid": ["attack is noise or nan"],
    }
