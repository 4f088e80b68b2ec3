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
    "heurfedamp": "strategies.heurfedamp:HEURFEDAMP",
    "local": "strategies.local:LOCAL",
    "scaffold": "strategies.scaffold:SCAFFOLD",
    "twafl": "strategies.twafl:TWAFL",
}
