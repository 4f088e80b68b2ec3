"""What each client holds: the datasets, the splits, and measures of how heterogeneous the clients are.

The two tables are lazy ("module:attribute"), so listing a name imports nothing.
"""

DATASETS: dict[str, str] = {
    "digits": "fedsim.partitions.catalogue:DIGITS",
    "mnist": "fedsim.partitions.catalogue:MNIST",
    "fmnist": "fedsim.partitions.catalogue:FMNIST",
    "emnist-balanced": "fedsim.partitions.catalogue:EMNIST_BALANCED",
    "emnist-byclass": "fedsim.partitions.catalogue:EMNIST_BYCLASS",
    "cifar10": "fedsim.partitions.catalogue:CIFAR10",
    "cifar100": "fedsim.partitions.catalogue:CIFAR100",
    "svhn": "fedsim.partitions.catalogue:SVHN",
    "usps": "fedsim.partitions.catalogue:USPS",
    "stl10": "fedsim.partitions.catalogue:STL10",
    "mix4": "fedsim.partitions.catalogue:MIX4",
    "ag-news": "fedsim.partitions.catalogue:AG_NEWS",
    "sogou-news": "fedsim.partitions.catalogue:SOGOU_NEWS",
    "sogouc": "fedsim.partitions.catalogue:SOGOUC",
    "shakespeare": "fedsim.partitions.catalogue:SHAKESPEARE",
    "amazon-reviews": "fedsim.partitions.catalogue:AMAZON_REVIEWS",
    "uci-har": "fedsim.partitions.catalogue:UCI_HAR",
    "pamap2": "fedsim.partitions.catalogue:PAMAP2",
    "femnist": "fedsim.partitions.catalogue:FEMNIST",
    "tiny-imagenet": "fedsim.partitions.catalogue:TINY_IMAGENET",
    "omniglot": "fedsim.partitions.catalogue:OMNIGLOT",
    "mnist-m": "fedsim.partitions.catalogue:MNIST_M",
    "syn": "fedsim.partitions.catalogue:SYN",
    "pacs": "fedsim.partitions.catalogue:PACS",
    "domainnet": "fedsim.partitions.catalogue:DOMAINNET",
    "digit-5": "fedsim.partitions.catalogue:DIGIT_5",
}

PARTITIONS: dict[str, str] = {
    "iid": "fedsim.partitions.iid:IID",
    "quantity": "fedsim.partitions.quantity:QUANTITY",
    "shards": "fedsim.partitions.label_skew:SHARDS",
    "pathological": "fedsim.partitions.label_skew:PATHOLOGICAL",
    "dirichlet": "fedsim.partitions.label_skew:DIRICHLET",
    "classes": "fedsim.partitions.classes:CLASSES",
    "labels": "fedsim.partitions.by_label:LABELS",
    "practical": "fedsim.partitions.practical:PRACTICAL",
    "c-niid": "fedsim.partitions.clustered:C_NIID",
    "sc-niid": "fedsim.partitions.clustered:SC_NIID",
    "c-dir": "fedsim.partitions.clustered:C_DIR",
    "sc-dir": "fedsim.partitions.clustered:SC_DIR",
    "mix4": "fedsim.partitions.feature_shift:MIX4",
    "feature-shift": "fedsim.partitions.feature_shift:FEATURE_SHIFT",
    "by-domain": "fedsim.partitions.by_domain:BY_DOMAIN",
    "by-user": "fedsim.partitions.by_user:BY_USER",
    "own": "fedsim.partitions.by_user:OWN",
}
