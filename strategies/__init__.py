"""The server halves of the algorithms: one short file each, and the only home of its equations."""

ALGORITHMS = {
    "fedavg": "strategies.fedavg:FEDAVG",
    "fedasync": "strategies.fedasync:FEDASYNC",
    "fedavg-ft": "strategies.fedavg_ft:FEDAVG_FT",
    "fedbuff": "strategies.fedbuff:FEDBUFF",
    "fedupdate": "strategies.fedupdate:FEDUPDATE",
    "lga": "strategies.lga:LGA",
    "local": "strategies.local:LOCAL",
    "per-fedavg": "strategies.per_fedavg:PER_FEDAVG",
    "pfedme": "strategies.pfedme:PFEDME",
    "plga": "strategies.plga:PLGA",
    "spfl": "strategies.spfl:SPFL",
    "spfl-w": "strategies.spfl_w:SPFL_W",
    "twafl": "strategies.twafl:TWAFL",
}
