"""A request that cannot be met says what is impossible, and the value it names as the nearest does work."""

import re
from typing import Any

import pytest

from fedsim.errors import ConfigError
from fedsim.partitions.catalogue import MIX4
from fedsim.partitions.split import Labels
from tests.partitions.known import labels, side_by_side, split

SMALL_MIX = ((140, 600, 500, 500), (20, 20, 20, 20), MIX4.parts)


@pytest.mark.parametrize(
    ("name", "clients", "params"),
    [
        ("dirichlet", 20, {"alpha": 0.02}),
        ("dirichlet", 100, {}),
        ("c-dir", 20, {"alpha": 0.02, "min_size": 20}),
        ("sc-dir", 40, {}),
        ("quantity", 100, {}),
        ("classes", 50, {}),
        ("labels", 2, {"labels": "0,1/1,2", "size": 80}),
        ("labels", 900, {"labels": "0"}),
        ("c-niid", 20, {"size": 40}),
        ("shards", 400, {}),
        ("pathological", 900, {}),
        ("practical", 10, {"sizes": "600,500,400,300,200"}),
        ("practical", 10, {"tests": 100}),
        ("by-user", 41, {}),
        ("iid", 601, {}),
        ("mix4", 100, {}),
        ("sc-niid", 1, {}),
        ("mix4", 3, {"size": 5}),
    ],
)
def test_the_nearest_value_works(name: str, clients: int, params: dict[str, Any]) -> None:
    data = side_by_side(*SMALL_MIX) if name == "mix4" else labels()
    with pytest.raises(ConfigError) as refused:
        split(name, data, clients, **params)
    offers = re.findall(r"(partition\.[\w-]+|clients)=([\d.,]*\d)", str(refused.value).partition(";")[2])
    assert offers, refused.value
    for key, value in offers:
        if key == "clients":
            shares = split(name, data, int(value), **params)
        else:
            shares = split(name, data, clients, **{**params, key.removeprefix("partition.").replace("-", "_"): value})
        assert all(len(s.train) for s in shares)


@pytest.mark.parametrize(
    ("name", "params", "says"),
    [
        ("classes", {"classes": 11}, "more than the 10 classes there are; use 10 or fewer"),
        ("pathological", {"classes": 11}, "more than the 10 classes"),
        ("iid", {"classes": 11}, "more than the 10 classes"),
        ("c-niid", {"labels": 11}, "more than the 10 classes"),
        ("sc-niid", {"labels": 5}, "more than the 4 labels of a super cluster; use 4 or fewer"),
        ("practical", {"sizes": "10,20"}, "needs 5 sizes, one per group"),
        ("practical", {"dominant": 1.5}, "partition.dominant must be at least 0 and at most 1, not 1.5"),
        ("practical", {"sizes": "10,0,10,10,10"}, "partition.sizes must be at least 1, not 0"),
        ("practical", {"tests": -1}, "partition.tests must be at least 0, not -1"),
        ("labels", {"labels": "0,10"}, "must list labels from 0 to 9 for each client, such as 8,9/9,0"),
        ("labels", {"labels": "0,0"}, "must list labels from 0 to 9"),
        ("labels", {"labels": "0/"}, "must list labels from 0 to 9"),
        ("mix4", {}, "use dataset=mix4"),
        ("feature-shift", {"by": "source"}, r"dataset=mnist\+usps"),
        ("feature-shift", {"rotations": 3}, "unknown partition.rotations '3'. Choices: 2, 4"),
        ("dirichlet", {"alpha": 0}, "partition.alpha must be above 0"),
        ("dirichlet", {"alpha": "nan"}, "partition.alpha must be above 0, not nan"),
        ("dirichlet", {"min_size": 0}, "partition.min-size must be at least 1, not 0"),
        ("c-dir", {"alpha": -1}, "partition.alpha must be above 0, not -1"),
        ("sc-dir", {"min_size": 0}, "partition.min-size must be at least 1, not 0"),
        ("c-niid", {"labels": -1}, "partition.labels must be at least 0, not -1"),
        ("sc-niid", {"allocation": "fair"}, "partition.allocation 'fair'. Choices: official-code, proportional"),
        ("quantity", {"alpha": 0}, "partition.alpha must be above 0, not 0"),
        ("shards", {"per_client": 0}, "partition.per-client must be at least 1, not 0"),
        ("pathological", {"classes": 0}, "partition.classes must be at least 1, not 0"),
        ("classes", {"classes": 0, "size": 10}, "partition.classes must be at least 1, not 0"),
        ("classes", {"size": -6}, "partition.size must be at least 0, not -6"),
        ("iid", {"classes": -1}, "partition.classes must be at least 0, not -1"),
        ("mix4", {"size": 0}, "partition.size must be at least 1, not 0"),
        ("by-user", {"min_size": 1}, "partition.min-size must be at least 2, not 1"),
        ("quantity", {"law": "cubic"}, "dirichlet, exponential, linear, square"),
    ],
)
def test_wrong_parameters(name: str, params: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        split(name, labels(), 10, **params)


def test_too_few_clients_to_use_every_label_of_a_cluster() -> None:
    """Clusters of 4 and 6 labels, two labels each: at least 2 + 3 clients."""
    with pytest.raises(ConfigError, match="use clients=5 or more"):
        split("sc-niid", labels(), 4)


def test_labels_without_users_or_images() -> None:
    bare = Labels(labels().train, labels().test, 10)
    with pytest.raises(ConfigError, match="user_train and user_test"):
        split("by-user", bare, 2)
    with pytest.raises(ConfigError, match="which classes look alike"):
        split("sc-niid", bare, 2)


def test_a_class_without_tests_cannot_be_all_a_client_holds() -> None:
    data = labels()
    with pytest.raises(ConfigError, match="no samples of class 3, all that one client holds"):
        split("pathological", Labels(data.train, data.test[data.test != 3], 10), 10, classes=1)
