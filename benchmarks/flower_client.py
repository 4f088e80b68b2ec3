"""The client app of the Flower reference. A module of its own, so that Ray actors import nothing else."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Reads the model and returns one of the same size."""
    (model,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    metrics = MetricRecord({"num-examples": 20, "loss": 0.0})
    return Message(RecordDict({"arrays": ArrayRecord([model]), "metrics": metrics}), reply_to=message)
