"""The client halves of the algorithms, the one training loop, and the models."""

MODELS = {
    "mlr": "clients.models:MLR",
    "mlp": "clients.models:MLP",
    "cnn": "clients.models:CNN",
}
