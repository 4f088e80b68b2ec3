"""AG_News and Sogou_News (Zhang et al. 2015), Shakespeare of LEAF, Amazon Reviews (Blitzer et al. 2007)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import Scratch
from fedsim.partitions.official import leaf, reading
from fedsim.partitions.raw import PARTS, Raw, validated, with_tokens
from fedsim.partitions.split import Array
from fedsim.partitions.table_files import csv_table
from fedsim.partitions.tables import from_tables
from fedsim.partitions.text import Tokenizer

NEWS = ("class", "title", "text")
FEATURES = 5000  # of a review: the most frequent ones of the training reviews
REVIEWS = {
    "train": ("positive", "negative"),
    "test": ("unlabeled",),
}  # files; those of the last one have labels as well


def news(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """`train.csv` and `test.csv` without a heading: class from 1 on, title and text."""
    classes = tuple(str(number) for number in range(1, spec.classes + 1))
    columns = replace(params, label="class", features=("title", "text"), user="", categories=(), classes=classes)
    tables = {part: csv_table(folder / f"{part}.csv", columns, NEWS) for part in PARTS}
    return from_tables(tables, spec, columns, scratch)


def shakespeare(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """LEAF's `train/*.json` and `test/*.json`: 80 characters and the next one, by speaking role."""
    tokenizer = Tokenizer(unit="characters", length=80, alphabet=spec.alphabet)
    letters = tokenizer.vocabulary(tokenizer.counter())
    place = {letter: number for number, letter in enumerate(spec.alphabet)}

    def roles(file: Path, user: str, x: list[str], y: list[str]) -> tuple[Array, Array]:
        if strange := sorted(set(y) - set(place)):
            raise ConfigError(f"{file}: {user} has the next character {strange[0]!r}, none of {spec.alphabet!r}")
        return tokenizer.encoded(x, letters), np.array([place[letter] for letter in y], np.int64)

    arrays, users = leaf.stacked(folder, roles, scratch)
    return with_tokens(validated(arrays, spec, str(folder), users), letters, learned=False)


def amazon_reviews(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """`DOMAIN/positive.review`, `negative.review` (training) and `unlabeled.review` (tests) with counts of words and pairs.

    A line is `word:count word_word:count ... #label#:positive`. Samples are the counts of the most frequent features of
    the training reviews; domains are the users.
    """
    domains = sorted(path.name for path in folder.iterdir() if (path / "positive.review").is_file())
    if not domains:
        raise ConfigError(f"{folder} holds no folder with positive.review, negative.review and unlabeled.review")
    totals: Counter[str] = Counter()
    for domain in domains:
        for counts, _ in _reviews(folder / domain, "train"):
            totals.update(counts)
    ranked = sorted(totals, key=lambda feature: (-totals[feature], feature))[:FEATURES]
    place = {feature: number for number, feature in enumerate(ranked)}
    arrays: dict[str, Array] = {}
    users: list[str] = []
    for part in PARTS:
        stack, labels = scratch.stack(), []
        for domain in domains:
            for counts, label in _reviews(folder / domain, part):
                x = np.zeros((1, len(ranked)), np.uint8)
                for feature, count in counts.items():
                    if feature in place:
                        x[0, place[feature]] = min(count, 255)
                stack.add(x)
                labels.append(label)
                users.append(domain)
        arrays[f"x_{part}"], arrays[f"y_{part}"] = stack.array(), np.array(labels)
    return validated(arrays, spec, str(folder), np.array(users))


def _reviews(folder: Path, part: str) -> Iterator[tuple[dict[str, int], int]]:
    for name in REVIEWS[part]:
        file = folder / f"{name}.review"
        with reading(file), file.open(encoding="utf8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                pairs = [entry.rpartition(":") for entry in line.split()]
                told = {feature: value for feature, _, value in pairs}
                label = told.pop("#label#", "")
                if label not in ("positive", "negative"):
                    raise ConfigError(f"{file}, row {number}: #label# must be positive or negative, not {label!r}")
                yield {feature: int(count) for feature, count in told.items()}, int(label == "positive")
