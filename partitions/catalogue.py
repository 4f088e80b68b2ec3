"""The known datasets: their classes, their normalization, and where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LabelSpaces = Literal["apart", "together"]


@dataclass(frozen=True)
class Torchvision:
    """The class of a dataset in torchvision, and the arguments that choose its two parts."""

    name: str
    train: Mapping[str, object] = field(default_factory=lambda: {"train": True})
    test: Mapping[str, object] = field(default_factory=lambda: {"train": False})
    transposed: bool = False  # EMNIST's files hold every image mirrored along its diagonal


@dataclass(frozen=True)
class Hub:
    """A dataset of the Hugging Face hub, and how it is read: parameters of `fedsim.config.DataParams`."""

    name: str
    params: Mapping[str, str | int | tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Single:
    """One dataset. Mean and std normalize images per channel, for pixels scaled to 0..1; empty: measured on x_train."""

    name: str
    about: str
    classes: int = 0  # 0: the largest label plus one
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    vision: Torchvision | None = None
    reader: str = ""  # "module:function" from this to `raw.Raw`, for a dataset that needs no files
    objective: str = "classification"  # what models are trained for: the name of an objective
    numbers: bool = False  # whole numbers that are no pixels are counts, not token ids: models see them as float32
    source: str = ""  # where its authors publish it
    files: str = ""  # "module:function" that reads the published files: see `fedsim.partitions.official`
    folders: tuple[str, ...] = ()  # what these may be called below the data root
    fetch: str = ""  # "module:function" from the data root to the published files, which it downloads
    hub: Hub | None = None
    alphabet: str = ""  # the characters that texts are made of; their places are the classes of the next one
    signals: bool = False  # samples are time x channels, and normalized per channel as images are
    size: int = 0  # images are scaled to so many pixels a side; 0: they have one size


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


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TEXT, _SENSORS, _IMAGES = (f"fedsim.partitions.official.{name}" for name in ("text", "sensors", "images"))

AG_NEWS = Single(
    "ag-news",
    "127,600 news texts in 4 classes",
    4,
    source="Zhang et al. 2015: ag_news_csv.tar.gz",
    files=f"{_TEXT}:news",
    folders=("ag_news_csv",),
    hub=Hub("fancyzhx/ag_news"),
)
SOGOU_NEWS = Single(
    "sogou-news",
    "510,000 Chinese news texts as pinyin in 5 classes",
    5,
    source="Zhang et al. 2015: sogou_news_csv.tar.gz",
    files=f"{_TEXT}:news",
    folders=("sogou_news_csv",),
    hub=Hub("community-datasets/sogou_news"),
)
SOGOUC = Single(
    "sogouc", "Sogou Lab news as pinyin in 10 classes", 10, source="Sogou Labs: SogouC, converted to pinyin"
)
SHAKESPEARE = Single(
    "shakespeare",
    "the next character after 80, by speaking role; 80 characters",
    80,
    source="LEAF: github.com/TalwalkarLab/leaf, data/shakespeare/data with its folders train and test",
    files=f"{_TEXT}:shakespeare",
    folders=("shakespeare", "leaf/data/shakespeare/data"),
    hub=Hub("flwrlabs/shakespeare", {"label": "y", "user": "character_id", "features": ("x",), "length": 80}),
    alphabet=f"\n !\"&'(),-.0123456789:;>?{_LETTERS}[]{_LETTERS.lower()}" + "}",
)
AMAZON_REVIEWS = Single(
    "amazon-reviews",
    "sentiment of reviews of books, DVDs, electronics and kitchen: counts of 5,000 words and pairs",
    2,
    numbers=True,
    source="Blitzer et al. 2007: processed_acl.tar.gz of the Multi-Domain Sentiment Dataset",
    files=f"{_TEXT}:amazon_reviews",
    folders=("processed_acl",),
)
UCI_HAR = Single(
    "uci-har",
    "10,299 windows of motion sensors, 128x9, 6 activities, 30 subjects",
    6,
    source="UCI: Human Activity Recognition Using Smartphones",
    files=f"{_SENSORS}:uci_har",
    folders=("UCI HAR Dataset",),
    signals=True,
)
PAMAP2 = Single(
    "pamap2",
    "windows of motion sensors, 256x27, 12 activities, 9 subjects",
    12,
    source="UCI: PAMAP2 Physical Activity Monitoring",
    files=f"{_SENSORS}:pamap2",
    folders=("PAMAP2_Dataset",),
    signals=True,
)
FEMNIST = Single(
    "femnist",
    "digits and letters in 62 classes by writer, 28x28",
    62,
    source="LEAF: github.com/TalwalkarLab/leaf, data/femnist/data with its folders train and test",
    files="fedsim.partitions.official.leaf:femnist",
    folders=("femnist", "leaf/data/femnist/data"),
    hub=Hub("flwrlabs/femnist", {"label": "character", "user": "writer_id", "features": ("image",)}),
)
TINY_IMAGENET = Single(
    "tiny-imagenet",
    "110,000 photos in 200 classes, 64x64x3",
    200,
    source="Stanford CS231n: tiny-imagenet-200.zip",
    files=f"{_IMAGES}:tiny_imagenet",
    folders=("tiny-imagenet-200",),
    hub=Hub("zh-plus/tiny-imagenet"),
)
OMNIGLOT = Single(
    "omniglot",
    "32,460 characters in 1,623 classes by drawer, 28x28",
    1623,
    source="Lake et al. 2015: github.com/brendenlake/omniglot, python/images_background and images_evaluation",
    files=f"{_IMAGES}:omniglot",
    folders=("omniglot/python", "torchvision/omniglot-py", "omniglot-py"),
    fetch=f"{_IMAGES}:fetch_omniglot",
    size=28,
)
MNIST_M = Single(
    "mnist-m",
    "digits of MNIST on photos, 32x32x3",
    10,
    source="Ganin et al. 2016: mnist_m.tar.gz",
    files=f"{_IMAGES}:mnist_m",
    folders=("mnist_m",),
)
SYN = Single(
    "syn",
    "synthetic digits, 32x32x3",
    10,
    source="Ganin et al. 2015: SynthDigits with synth_train_32x32.mat and synth_test_32x32.mat",
    files=f"{_IMAGES}:syn",
    folders=("synth_train_32x32.mat", "SynthDigits/synth_train_32x32.mat"),
)
PACS = Single(
    "pacs",
    "9,991 pictures in 7 classes and 4 domains: art, cartoon, photo, sketch; scaled to 64x64x3",
    7,
    source="Li et al. 2017: PACS with DOMAIN/CLASS/*.jpg",
    files=f"{_IMAGES}:domains",
    folders=("PACS", "pacs_data"),
    hub=Hub("flwrlabs/pacs", {"user": "domain", "features": ("image",)}),
    size=64,
)
DOMAINNET = Single(
    "domainnet",
    "586,575 pictures in 345 classes and 6 domains, scaled to 64x64x3",
    345,
    source="Peng et al. 2019: DomainNet (ai.bu.edu/M3SDA) with DOMAIN/CLASS/*.jpg, DOMAIN_train.txt and DOMAIN_test.txt",
    files=f"{_IMAGES}:domains",
    folders=("domainnet", "DomainNet"),
    size=64,
)
DIGIT_5 = Composite(
    "digit-5", "digits of five domains that share their labels", ("mnist", "mnist-m", "usps", "svhn", "syn"), "together"
)
