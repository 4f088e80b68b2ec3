"""Every client holds samples of one domain; a domain with several clients is divided between them at random."""

from dataclasses import dataclass

import numpy as np

from fedsim.config import NonNegativeInt
from fedsim.errors import ConfigError
from fedsim.partitions.allocation import apportion
from fedsim.partitions.by_user import at_most, train_and_test
from fedsim.partitions.split import Labels, Partition, Share


@dataclass(frozen=True)
class ByDomainParams:
    size: NonNegativeInt = 0  # training samples per client at most, drawn at random; 0: all there are
    tests: NonNegativeInt = 0  # test samples per client, likewise


def by_domain(labels: Labels, clients: int, params: ByDomainParams, rng: np.random.Generator) -> list[Share]:
    """Domains are the datasets side by side, else the users; each has equally many clients (one more or less)."""
    if labels.source is None and labels.users is None:
        raise ConfigError(
            "partition by-domain needs domains: several datasets such as mnist+usps, or users, which are user_train and "
            "user_test of an npz file, or a column of a table, data.user"
        )
    owner = labels.source if labels.source is not None else np.unique(np.asarray(labels.users), return_inverse=True)[1]
    domains, trains = int(owner.max()) + 1, len(labels.train)
    if clients < domains:
        raise ConfigError(f"{clients} clients cannot hold {domains} domains; use clients={domains} or more")
    shares = []
    for domain, members in enumerate(apportion(clients, np.ones(domains)).tolist()):
        parts = train_and_test(np.flatnonzero(owner == domain), trains, rng)[:2]
        if (fewest := min(map(len, parts))) < members:
            raise ConfigError(
                f"a domain has {fewest} training or test samples, too few for {members} clients; use "
                f"clients={domains * fewest} or fewer"
            )
        pieces = (np.array_split(rng.permutation(part), members) for part in parts)
        shares += [at_most(params.size, params.tests, Share(*piece), rng) for piece in zip(*pieces, strict=True)]
    return shares


BY_DOMAIN = Partition(
    "by-domain",
    "samples of one domain: of datasets side by side, or of users that are domains",
    ByDomainParams,
    by_domain,
    needs_classes=False,
)
