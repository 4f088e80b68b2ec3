"""The known datasets: their classes, their normalization, and their names in torchvision."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

LabelSpaces = Literal["apart", "together"]


@dataclass(frozen=True)
class Torchvision:
    """The class of a dataset in torchvision, and the arguments that choose its two parts."""

    name: str
    train: Mapping[str, object] = field(default_factory=lambda: {"train": True})
    test: Mapping[str, object] = field(default_factory=lambda: {"train": False})
    transposed: bool = False  # EMNIST's files hold every image mirrored along its diagonal


@dataclass(frozen=True)
class Single:
    """One dataset. Mean and std normalize images per channel, for pixels scaled to 0..1; empty: measured on x_train."""

    name: str
    about: str
    classes: int = 0  # 0: the largest label plus one
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    vision: Torchvision | None = None
    reader: str = ""  # "module:function" from this to `readers.Raw`, for a dataset that torchvision does not have
    objective: str = "classification"  # what models are trained for: the name of an objective
    numbers: bool = False  # whole numbers that are no pixels are counts, not token ids: models see them as float32
    source: str = ""  # where its authors publish it
    files: str = ""  # "module:function" from this and the data root to `readers.Raw`: reads the published files
    folder: str = ""  # of the published files, below the data root


@dataclass(frozen=True)
class Composite:
    """Several datasets side by side, images of one shape. Labels lie `apart` (each dataset its own) or `together`."""

    name: str
    about: str
    parts: tuple[str, ...]
    labels: LabelSpaces


def _by_split(name: str) -> Torchvision:
    return Torchvision(name, {"split": "train"}, {"split": "test"})


def _emnist(split: str) -> Torchvision:
    return Torchvision("EMNIST", {"split": split, "train": True}, {"split": split, "train": False}, transposed=True)


DIGITS = Single(
    "digits",
    "1,797 handwritten digits, 8x8, in scikit-learn: no download",
    10,
    reader="fedsim.partitions.readers:from_sklearn",
)
MNIST = Single("mnist", "70,000 handwritten digits, 28x28", 10, (0.1307,), (0.3081,), Torchvision("MNIST"))
FMNIST = Single("fmnist", "70,000 articles of clothing, 28x28", 10, (0.2860,), (0.3530,), Torchvision("FashionMNIST"))
EMNIST_BALANCED = Single(
    "emnist-balanced",
    "131,600 letters and digits in 47 equal classes, 28x28",
    47,
    (0.1307,),
    (0.3081,),
    _emnist("balanced"),
)
EMNIST_BYCLASS = Single(
    "emnist-byclass",
    "814,255 digits, capitals and small letters in 62 classes, 28x28",
    62,
    (0.1307,),
    (0.3081,),
    _emnist("byclass"),
)
CIFAR10 = Single(
    "cifar10",
    "60,000 photos in 10 classes, 32x32x3",
    10,
    (0.4914, 0.4822, 0.4465),
    (0.247, 0.243, 0.261),
    Torchvision("CIFAR10"),
)
CIFAR100 = Single(
    "cifar100",
    "60,000 photos in 100 classes, 32x32x3",
    100,
    (0.5071, 0.4865, 0.4409),
    (0.2673, 0.2564, 0.2762),
    Torchvision("CIFAR100"),
)
SVHN = Single(
    "svhn", "99,289 house numbers, 32x32x3", 10, (0.4377, 0.4438, 0.4728), (0.198, 0.201, 0.197), _by_split("SVHN")
)
# Copies of USPS differ in contrast, so its mean and deviation are measured.
USPS = Single("usps", "9,298 handwritten digits, 16x16", 10, vision=Torchvision("USPS"))
STL10 = Single(
    "stl10",
    "13,000 photos in 10 classes, 96x96x3",
    10,
    (0.4467, 0.4398, 0.4066),
    (0.2603, 0.2566, 0.2713),
    _by_split("STL10"),
)
MIX4 = Composite(
    "mix4",
    "USPS, CIFAR-10, SVHN and Fashion-MNIST side by side, 40 classes",
    ("usps", "cifar10", "svhn", "fmnist"),
    "apart",
)


def _published(name: str, about: str, classes: int, source: str, **more: Any) -> Single:
    return Single(name, about, classes, source=source, **more)


_NEWS = "fedsim.partitions.official:news"
AG_NEWS = _published(
    "ag-news", "127,600 news texts in 4 classes", 4, "Zhang et al. 2015, ag_news_csv", files=_NEWS, folder="ag_news_csv"
)
SOGOU_NEWS = _published(
    "sogou-news",
    "510,000 Chinese news texts as pinyin in 5 classes",
    5,
    "Zhang et al. 2015, sogou_news_csv",
    files=_NEWS,
    folder="sogou_news_csv",
)
SOGOUC = _published("sogouc", "Sogou Lab news as pinyin in 10 classes", 10, "Sogou Labs, SogouC")
SHAKESPEARE = _published("shakespeare", "next character by speaking role, 80 characters", 80, "LEAF, leaf.cmu.edu")
AMAZON_REVIEWS = _published(
    "amazon-reviews", "sentiment of reviews of 4 domains, 5,000 counts", 2, "Blitzer et al. 2007", numbers=True
)
UCI_HAR = _published(
    "uci-har",
    "10,299 windows of motion sensors, 128x9, 6 activities, 30 subjects",
    6,
    "UCI, Human Activity Recognition Using Smartphones",
    files="fedsim.partitions.official:uci_har",
    folder="UCI HAR Dataset",
)
FEMNIST = _published("femnist", "digits and letters in 62 classes by writer, 28x28", 62, "LEAF, leaf.cmu.edu")
TINY_IMAGENET = _published("tiny-imagenet", "110,000 photos in 200 classes, 64x64x3", 200, "Stanford CS231n")
OMNIGLOT = _published("omniglot", "32,460 characters in 1,623 classes by drawer", 1623, "Lake et al. 2015")
MNIST_M = _published("mnist-m", "MNIST on photos, 32x32x3", 10, "Ganin et al. 2016")
SYN = _published("syn", "synthetic digits, 32x32x3", 10, "Ganin et al. 2015")
PACS = _published("pacs", "7 classes in 4 domains: photo, art, cartoon, sketch", 7, "Li et al. 2017")
DIGIT5 = Composite(
    "digit5", "digits of five domains that share their labels", ("mnist", "mnist-m", "usps", "svhn", "syn"), "together"
)
