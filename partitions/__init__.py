"""What each client holds: the datasets, the ways of splitting them, and how unequal the clients become.

The two tables are lazy ("module:attribute"), so listing a name imports nothing.
"""

DATASETS: dict[str, str] = {
    "digits": "partitions.catalogue:DIGITS",
    "mnist": "partitions.catalogue:MNIST",
    "fmnist": "partitions.catalogue:FMNIST",
    "emnist-balanced": "partitions.catalogue:EMNIST_BALANCED",
    "emnist-byclass": "partitions.catalogue:EMNIST_BYCLASS",
    "cifar10": "partitions.catalogue:CIFAR10",
    "cifar100": "partitions.catalogue:CIFAR100",
    "svhn": "partitions.catalogue:SVHN",
    "usps": "partitions.catalogue:USPS",
    "stl10": "partitions.catalogue:STL10",
    "mix4": "partitions.catalogue:MIX4",
}

PARTITIONS: dict[str, str] = {
    "iid": "partitions.uniform:IID",
    "quantity": "partitions.uniform:QUANTITY",
    "shards": "partitions.skewed:SHARDS",
    "pathological": "partitions.skewed:PATHOLOGICAL",
    "dirichlet": "partitions.skewed:DIRICHLET",
    "classes": "partitions.classes:CLASSES",
    "practical": "partitions.practical:PRACTICAL",
    "c-niid": "partitions.clustered:C_NIID",
    "sc-niid": "partitions.clustered:SC_NIID",
    "c-dir": "partitions.clustered:C_DIR",
    "sc-dir": "partitions.clustered:SC_DIR",
    "mix4": "partitions.sourced:MIX4",
    "feature-shift": "partitions.sourced:FEATURE_SHIFT",
    "by-user": "partitions.natural:BY_USER",
    "own": "partitions.natural:OWN",
}
