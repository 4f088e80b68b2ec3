"""The server halves of the algorithms: one short file each, and the only home of its equations."""

ALGORITHMS = {
    "fedavg": "strategies.fedavg:FEDAVG",
    "fedavg-ft": "strategies.fedavg_ft:FEDAVG_FT",
    "local": "strategies.local:LOCAL",
}
