"""The client halves of the algorithms, the one training loop, the models and the objectives."""

MODELS = {
    "mlr": "fedsim.clients.models:MLR",
    "mlp": "fedsim.clients.models:MLP",
    "cnn": "fedsim.clients.models:CNN",
    "cnn-bn": "fedsim.clients.models:BatchNormCNN",
    "fedavg-mlp": "fedsim.clients.models:MLP",
    "fedavg-cnn": "fedsim.clients.models:FedAvgCNN",
    "vgg11": "fedsim.clients.models:VGG11",
    "lenet5": "fedsim.clients.models:LeNet5",
    "resnet9": "fedsim.clients.models:ResNet9",
    "resnet9-bn": "fedsim.clients.models:BatchNormResNet9",
}

OBJECTIVES = {
    "classification": "fedsim.clients.objectives:Classification",
    "next-token": "fedsim.clients.objectives:NextToken",
    "regression": "fedsim.clients.objectives:Regression",
}
