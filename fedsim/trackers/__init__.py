"""Trackers: where a run is logged while it happens, `log=NAME`. Each is one file."""

TRACKERS = {
    "csv": "fedsim.trackers.csv:CsvFiles",
    "mlflow": "fedsim.trackers.mlflow:Mlflow",
    "tensorboard": "fedsim.trackers.tensorboard:TensorBoard",
    "wandb": "fedsim.trackers.wandb:WeightsAndBiases",
}
