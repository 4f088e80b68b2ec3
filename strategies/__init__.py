"""The server halves of the algorithms: one short file each, and the only home of its equations."""

ALGORITHMS = {
    "apfl": "strategies.apfl:APFL",
    "fedamp": "strategies.fedamp:FEDAMP",
    "fedasync": "strategies.fedasync:FEDASYNC",
    "fedavg": "strategies.fedavg:FEDAVG",
    "fedavg-ft": "strategies.fedavg_ft:FEDAVG_FT",
    "fedbuff": "strategies.fedbuff:FEDBUFF",
    "fedprox": "strategies.fedprox:FEDPROX",
    "fedprox-ft": "strategies.fedprox_ft:FEDPROX_FT",
    "fedupdate": "strategies.fedupdate:FEDUPDATE",
    "heurfedamp": "strategies.heurfedamp:HEURFEDAMP",
    "lga": "strategies.lga:LGA",
    "local": "strategies.local:LOCAL",
    "per-fedavg": "strategies.per_fedavg:PER_FEDAVG",
    "pfedme": "strategies.pfedme:PFEDME",
    "plga": "strategies.plga:PLGA",
    "scaffold": "strategies.scaffold:SCAFFOLD",
    "spfl": "strategies.spfl:SPFL",
    "spfl-w": "strategies.spfl_w:SPFL_W",
    "twafl": "strategies.twafl:TWAFL",
}
