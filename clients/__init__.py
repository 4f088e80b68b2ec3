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
    "resnet18": "fedsim.clients.vision_models:ResNet18",
    "resnet18-bn": "fedsim.clients.vision_models:BatchNormResNet18",
    "mobilenet": "fedsim.clients.vision_models:MobileNet",
    "alexnet": "fedsim.clients.vision_models:AlexNet",
    "googlenet": "fedsim.clients.vision_models:GoogLeNet",
    "dnn": "fedsim.clients.models:DNN",
    "amazon-mlp": "fedsim.clients.models:AmazonMLP",
    "har-cnn": "fedsim.clients.models:HarCNN",
    "fasttext": "fedsim.clients.text_models:FastText",
    "textcnn": "fedsim.clients.text_models:TextCNN",
    "lstm": "fedsim.clients.text_models:LSTM",
    "transformer": "fedsim.clients.text_models:Transformer",
    "char-lstm": "fedsim.clients.text_models:CharLSTM",
    "char-lstm-lm": "fedsim.clients.text_models:CharLSTMLM",
}

OBJECTIVES = {
    "classification": "fedsim.clients.objectives:Classification",
    "next-token": "fedsim.clients.objectives:NextToken",
    "regression": "fedsim.clients.objectives:Regression",
}
