"""Settings that make algorithms with long phases, or with a large server, quick: they say nothing about a contract."""

PHASES = ["fedala.epochs=2", "fedma-growth.sweeps=1", "fedrep.head-epochs=2", "pfedhn.hidden=8"]
