"""CSV and Parquet tables of the user's: what becomes of columns, and how broken ones are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim import config as configs
from fedsim.cli import main
from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions import datasets
from fedsim.partitions.client_data import client_data, shares
from fedsim.partitions.export import export

RNG = np.random.default_rng(0)


def load(path: Path, **params: Any) -> datasets.Dataset:
    return datasets.load(str(path), "", DataParams(**params))


def csv(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def rows(count: int, classes: int = 3) -> list[str]:
    """Columns a, b, label, ward: a is the row, b its negative half."""
    return [f"{i},{-i / 2},{i % classes},w{i % 4}" for i in range(count)]


def test_numbers_labels_and_users_of_a_csv_file(tmp_path: Path) -> None:
    file = csv(tmp_path / "blood.csv", "a,b,label,ward", *rows(60))
    data = load(file, user="ward")
    assert (len(data.labels.train), len(data.labels.test), data.classes, data.shape) == (48, 12, 3, (2,))
    assert np.bincount(data.labels.test).tolist() == [4, 4, 4]  # a fifth of every class
    x = data.samples(np.arange(60), normalized=False)
    assert sorted(x[:, 0].tolist()) == list(range(60))
    assert x[:, 1].tolist() == (-x[:, 0] / 2).tolist()
    assert data.targets.tolist() == (x[:, 0].astype(int) % 3).tolist()
    assert data.labels.users is not None
    assert data.labels.users.tolist() == [f"w{int(a) % 4}" for a in x[:, 0]]
    trained = data.samples(np.arange(48))
    assert (trained.mean(0), trained.std(0)) == (pytest.approx(0, abs=1e-6), pytest.approx(1, rel=1e-6))


def test_parquet_and_csv_are_the_same_data(tmp_path: Path) -> None:
    one = load(csv(tmp_path / "one.csv", "a,b,label,ward", *rows(40)), user="ward")
    table = pa.table({"a": range(40), "b": [-i / 2 for i in range(40)], "label": [i % 3 for i in range(40)]})
    pq.write_table(table.append_column("ward", [[f"w{i % 4}" for i in range(40)]]), tmp_path / "two.parquet")
    assert load(tmp_path / "two.parquet", user="ward").fingerprint == one.fingerprint


def test_a_name_below_the_data_root_and_a_table_of_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csv(tmp_path / "wards.csv", "a,b,label,ward", *rows(12))
    assert len(datasets.load("wards", str(tmp_path), DataParams(features=("a",))).labels.train) == 9
    assert len(datasets.load("wards.csv", str(tmp_path), DataParams(features=("a",))).labels.test) == 3
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=rf"by its absolute path, {tmp_path}/wards.csv"):
        datasets.load("./wards.csv", "/nowhere")
    csv(tmp_path / "later.csv", "b,a,ward,label", "0.5,1,w1,7")
    data = datasets.load("wards", str(tmp_path), DataParams(test="later.csv", features=("a", "b")))
    assert data.samples(np.array([12]), normalized=False).tolist() == [[1, 0.5]]  # by name, not by place
    assert data.classes == 8  # a class that only the tests have
    folder = tmp_path / "both"
    folder.mkdir()
    csv(folder / "train.csv", "a,label", "1,0", "2,1")
    csv(folder / "test.csv", "a,label", "3,1")
    assert datasets.load("both", str(tmp_path)).targets.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("labels", "given", "numbers"),
    [
        (["no", "yes", "no", "maybe"], (), [1, 2, 1, 0]),
        (["no", "yes", "no", "maybe"], ("yes", "no", "maybe", "never"), [1, 0, 1, 2]),
        (["-1", "1", "-1", "1"], (), [0, 1, 0, 1]),
        (["1", "3", "1.0", "3"], (), [1, 3, 1, 3]),
        (["10", "9", "x", "9"], (), [0, 1, 2, 1]),
    ],
)
def test_labels_as_texts_or_numbers(
    tmp_path: Path, labels: list[str], given: tuple[str, ...], numbers: list[int]
) -> None:
    csv(tmp_path / "train.csv", "a,label", *(f"{i},{label}" for i, label in enumerate(labels)))
    csv(tmp_path / "test.csv", "a,label", f"9,{labels[0]}")
    data = load(tmp_path, classes=given)
    assert data.targets.tolist() == [*numbers, numbers[0]]
    assert data.classes == (len(given) or max(numbers) + 1)


def test_categories_become_an_input_for_each_value_of_the_training_rows(tmp_path: Path) -> None:
    csv(tmp_path / "train.csv", "age,color,label", "30,red,0", "40,blue,1")
    csv(tmp_path / "test.csv", "age,color,label", "35,green,1")
    data = load(tmp_path, categories=("color",))
    assert data.samples(np.arange(3)).tolist() == [[-1, 0, 1], [1, 1, 0], [0, 0, 0]]  # blue, red; green is unknown


def test_texts_are_joined_and_tokenized_with_the_words_of_the_training_rows(tmp_path: Path) -> None:
    csv(tmp_path / "train.csv", "title,body,label", 'Cats,"cats, and\ndogs",a', "Dogs,,b")
    csv(tmp_path / "test.csv", "title,body,label", "birds,cats,b")
    data = load(tmp_path, length=6)
    # cats and dogs twice, then the comma and `and`
    assert data.samples(np.arange(3)).tolist() == [[2, 2, 4, 5, 3, 0], [3, 0, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0]]
    letters = load(tmp_path, length=4, features=("title",), tokenizer="characters")
    assert letters.samples(np.array([0, 1])).tolist() == [[3, 5, 8, 2], [4, 7, 6, 2]]  # s; C D a g o t


def test_a_vocabulary_from_a_file_is_the_same_on_every_node(tmp_path: Path) -> None:
    file = csv(tmp_path / "texts.csv", "t,label", *(f"word{i % 3} other,{i % 2}" for i in range(20)))
    own = [f"dataset={file}", "partition=own", "clients=2", "model=fasttext"]
    with pytest.raises(ConfigError, match=r"numbers its tokens by what it holds itself.*data.tokens=FILE"):
        client_data(configs.read(None, own), 0)
    words = csv(tmp_path / "words.txt", "other", "word1")
    data = client_data(configs.read(None, [*own, f"data.tokens={words}"]), 0)
    assert (data.vocabulary, set(np.unique(data.x_train[:, :3]).tolist())) == (4, {0, 1, 2, 3})
    csv(words, "other", "other")
    with pytest.raises(
        ConfigError, match=r"words.txt must have one token in every line, but 'other' stands there twice"
    ):
        client_data(configs.read(None, [*own, f"data.tokens={words}"]), 0)
    named = csv(tmp_path / "named.csv", "a,label", *(f"{i},{'xy'[i % 2]}" for i in range(20)))
    own[0] = f"dataset={named}"
    with pytest.raises(ConfigError, match=r"numbers its labels by what it holds itself.*data.classes"):
        client_data(configs.read(None, [*own, "model=mlp"]), 0)
    assert client_data(configs.read(None, [*own, "model=mlp", "data.classes=x,y,z"]), 1).classes == 3


def test_a_regression(tmp_path: Path) -> None:
    file = csv(tmp_path / "prices.csv", "rooms,price", *(f"{i},{i * 1.5}" for i in range(20)))
    data = load(file, label="price", objective="regression")
    assert (data.classes, data.objective, len(data.labels.test)) == (0, "regression", 4)
    assert data.targets.tolist() == (1.5 * data.samples(np.arange(20), normalized=False)[:, 0]).tolist()


def test_lists_of_numbers_keep_their_shape(tmp_path: Path) -> None:
    windows = RNG.normal(size=(10, 4, 3)).astype(np.float32)
    table = pa.table({"window": windows.tolist(), "label": [0, 1] * 5})
    pq.write_table(table, tmp_path / "windows.parquet")
    data = load(tmp_path / "windows.parquet")
    assert data.shape == (4, 3)
    assert {x.tobytes() for x in data.samples(np.arange(10), normalized=False)} == {x.tobytes() for x in windows}
    assert data.samples(np.arange(8)).mean((0, 1)) == pytest.approx(0, abs=1e-5)  # per channel


@pytest.mark.parametrize(
    ("content", "params", "says"),
    [
        ("a,label\n1,0\n2\n", {}, r"Row #3: Expected 2 columns, got 1"),
        ("a,target\n1,0\n", {}, r"unknown column for data.label of .*bad.csv 'label'.*Choices: a, target"),
        ("a,label\n1,0\n", {"user": "ward"}, r"unknown column for data.user of .*'ward'.*Choices: a, label"),
        ("a,label\n1,0\n", {"features": ("b",)}, r"unknown column for data.features of .*'b'"),
        ("a,b,label\n1,2,0\n1,,0\n", {}, r"row 3: column 'b' is empty"),
        ("a,b,label\n1,2,0\n1,nan,0\n", {}, r"row 3: column 'b' is empty"),
        ("a,b,label\n1,2,0\n1,inf,0\n", {}, r"row 3: column 'b' holds NaN or infinity"),
        ("a,b,label\n1,2,0\n1,1e99,0\n", {}, r"row 3: column 'b' holds NaN or infinity"),
        ("a,label\n1,\n", {}, r"row 2: column 'label' is empty; every row needs one"),
        ("a,label\n1,1e30\n2,1\n", {}, r"column 'label' holds 1e\+30, which is too large for a class"),
        ("a,label,\udcff\n1,0,0\n", {}, r"cannot be read: .*utf-8"),
        (
            "a,label\n1,0.5\n2,1\n",
            {},
            r"column 'label' holds 0.5; classes are whole numbers or texts, real numbers need",
        ),
        (
            "a,label\n1,b\n2,c\n",
            {"classes": ("b", "d")},
            r"column 'label' holds 'c', which is none of the classes: b, d",
        ),
        ("a,b,label\n1,x,0\n2,y,1\n", {}, r"not a mixture \(numbers: a; texts: b\).*data.categories"),
        ("label\n1\n", {}, r"needs columns for the samples besides data.label=label; it has: label"),
        ("a,a,label\n1,1,0\n", {}, r"two columns 'a'"),
        ("a,day,label\n1,2020-01-01,0\n", {}, r"column 'day' holds date32.*Choose other columns with data.features"),
        ("a,label\n", {}, r"holds no rows"),
        ("", {}, r"cannot be read: Empty CSV file"),
        ("a,label\n1,0\n", {}, r"too few rows to hold some out as tests"),
        ("a,label\n1,0\n", {"test": "none.csv"}, r"data.test=none.csv: there is no file"),
        ("a,label\n1,0\n", {"label": "a", "features": ("a",)}, r"needs columns for the samples besides"),
    ],
)
def test_a_broken_table_is_refused_by_row_and_column(
    tmp_path: Path, content: str, params: dict[str, Any], says: str
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(content, errors="surrogateescape")
    with pytest.raises(ConfigError, match=says) as refused:
        load(file, **params)
    assert str(file) in str(refused.value) or "data.test" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_value_that_is_no_number_far_down_names_its_row(tmp_path: Path) -> None:
    lines = [f"{i}{'0' * 30},{i % 2}" for i in range(40_000)]  # more than the 1 MiB that decide the types
    lines[35_000] = "oops,0"
    file = csv(tmp_path / "long.csv", "a,label", *lines)
    with pytest.raises(ConfigError, match=r"Row #35002: CSV conversion error to double: invalid value 'oops'"):
        load(file)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"x": [[1, 2], [1, 2, 3]]}, r"row 2: column 'x' holds 3 numbers, but 2 in row 1"),
        ({"x": [[[1], [2]], [[1], [2, 3]]]}, r"row 2: column 'x' holds 2 numbers, but 1 in row 1"),
        ({"x": [[1.0, 2.0], [1.0, None]]}, r"row 2: column 'x' is empty"),
        ({"x": [[1.0, 2.0], [1.0, float("nan")]]}, r"row 2: column 'x' holds NaN or infinity"),
        ({"x": [1, 2], "label": [0, None]}, r"row 2: column 'label' is empty"),
        ({"x": [{"y": 1}, {"y": 2}]}, r"column 'x' holds struct<y: int64>; samples are made of numbers"),
        ({"x": [b"no image", b""]}, r"row 2: column 'x' is empty; every row needs an image"),
        ({"x": [b"no image", b"none"]}, r"row 1: column 'x' cannot be read as an image"),
    ],
)
def test_a_broken_parquet_table(tmp_path: Path, columns: dict[str, Any], says: str) -> None:
    pq.write_table(pa.table({"label": [0, 0], **columns}), tmp_path / "bad.parquet")
    with pytest.raises(ConfigError, match=says):
        load(tmp_path / "bad.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "bad.parquet").read_bytes()[:50])
    with pytest.raises(ConfigError, match=r"cut.parquet cannot be read"):
        load(tmp_path / "cut.parquet")


def test_tests_without_a_column_of_the_training_table(tmp_path: Path) -> None:
    csv(tmp_path / "train.csv", "a,b,label", "1,2,0")
    csv(tmp_path / "test.csv", "a,label", "1,0")
    with pytest.raises(ConfigError, match=r"test.csv: it lacks a column of the training table: 'b'; it has: a, label"):
        load(tmp_path)


def test_a_client_of_the_users_in_a_run_and_as_a_silo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        f"{RNG.normal(i % 3, 0.2):.4f},{RNG.normal(-(i % 3), 0.2):.4f},{'abc'[i % 3]},w{i % 4}" for i in range(120)
    ]
    file = csv(tmp_path / "ward.csv", "x,y,kind,ward", *lines)
    settings = [f"dataset={file}", "data.label=kind", "data.user=ward", "partition=by-user", "clients=4", "rounds=3"]
    flags = [word for pair in settings for word in ("--set", pair)]
    assert main(["run", "--engine", "inline", *flags, "--set", "lr=0.3", "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["accuracy"]["global"]["final"] > 0.9
    config = configs.read(None, settings)
    export(config, tmp_path / "silos", lambda done, total: None)
    silo = configs.read(None, [f"dataset={tmp_path / 'silos' / 'client-0002.npz'}", "partition=own", "clients=4"])
    held = client_data(config, 2)
    assert np.array_equal(client_data(silo, 2).x_train, held.x_train)  # normalized as in the whole table
    assert len(held.x_train) == len(shares(config)[2].train)
    capsys.readouterr()
    assert main(["data", str(file), "--set", "data.label=kind", "--set", "data.features=x,y"]) == 0
    assert "96 training and 24 test samples, 3 classes, samples 2 (float32)" in capsys.readouterr().out
    assert main(["data", str(file), "--set", "rounds=3"]) == 2
