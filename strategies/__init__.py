"""The server halves of the algorithms: one short file each, and the only home of its equations."""

ALGORITHMS = {
    "fedavg": "strategies.fedavg:FEDAVG",
    "fedasync": "strategies.fedasync:FEDASYNC",
    "fedavg-ft": "strategies.fedavg_ft:FEDAVG_FT",
    "fedbuff": "strategies.fedbuff:FEDBUFF",
    "local": "strategies.local:LOCAL",
    "twafl": "strategies.twafl:TWAFL",
}
