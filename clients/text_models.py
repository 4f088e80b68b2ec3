"""Models of text: samples are token ids of shape (T,), padded on the right with 0. Each is head(base(x)).

Base and features never depend on the padding, so a text has the same output however long the longest one is.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from fedsim.clients.models import HeadOnBase, Kind, Shape

PAD = 0


class TokenModel(HeadOnBase):
    """Built from the number of token ids too."""

    kind: ClassVar[Kind] = "tokens"


class FastText(TokenModel):
    """The mean of the embeddings of a text's tokens (64), and one linear layer."""

    def __init__(self, shape: Shape, classes: int, vocabulary: int, width: int = 64) -> None:
        super().__init__()
        self.base = MeanEmbedding(vocabulary, width)
        self.head = nn.Linear(width, classes)


class MeanEmbedding(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)

    def forward(self, x: Tensor) -> Tensor:
        return mean_of_tokens(self.embedding(x), x)


class LSTM(TokenModel):
    """Embedding (64), one LSTM layer (128 units), the mean of its outputs over a text's tokens, one linear layer."""

    def __init__(self, shape: Shape, classes: int, vocabulary: int, width: int = 64, hidden: int = 128) -> None:
        super().__init__()
        self.base = Recurrent(vocabulary, width, hidden, layers=1, features="mean")
        self.head = nn.Linear(hidden, classes)


class CharLSTM(TokenModel):
    """LEAF's model of Shakespeare: embedding (8), two LSTM layers (256 units), the state after the last character."""

    features: ClassVar[str] = "last"

    def __init__(self, shape: Shape, classes: int, vocabulary: int) -> None:
        super().__init__()
        self.base = Recurrent(vocabulary, 8, 256, layers=2, features=self.features)
        self.head = nn.Linear(256, classes)


class CharLSTMLM(CharLSTM):
    """The layers of char-lstm with an output for every position, for targets per position (objective next-token)."""

    features = "all"


class Recurrent(nn.Module):
    """An LSTM over embeddings. Its features are the mean of the outputs over the tokens, the one at the last token, or
    all of them (N x T x hidden). It reads from left to right: padding comes after everything it could change."""

    def __init__(self, vocabulary: int, width: int, hidden: int, layers: int, features: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
        self._features = features

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.lstm(self.embedding(x))[0]
        if self._features == "all":
            return outputs
        if self._features == "mean":
            return mean_of_tokens(outputs, x)
        last = ((x != PAD) * torch.arange(x.shape[1], device=x.device)).amax(1)  # 0 for an empty text
        return outputs[torch.arange(len(x), device=x.device), last]


class TextCNN(TokenModel):
    """Kim 2014: embedding (64), convolutions over 3, 4 and 5 tokens (100 each), their maxima, dropout, linear."""

    def __init__(self, shape: Shape, classes: int, vocabulary: int, width: int = 64, channels: int = 100) -> None:
        super().__init__()
        self.base = TokenConvolutions(vocabulary, width, channels, (3, 4, 5))
        self.head = nn.Linear(3 * channels, classes)


class TokenConvolutions(nn.Module):
    def __init__(self, vocabulary: int, width: int, channels: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, channels, size) for size in sizes)
        self.dropout = nn.Dropout(0.5)
        self._longest = max(sizes)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.pad(x, (self._longest - 1, 0), value=PAD)  # a text may be shorter than a window
        embedded = self.embedding(x).mT
        # a window counts if it ends at a token, so that the number of windows does not depend on the padding
        maxima = []
        for layer in self.convolutions:
            found = layer(embedded).relu()
            ends = x[:, -found.shape[2] :]  # the last token of each window
            maxima.append(found.masked_fill((ends == PAD).unsqueeze(1), 0).amax(2))
        features: Tensor = self.dropout(torch.cat(maxima, 1))
        return features


class Transformer(TokenModel):
    """Embedding and learned positions (64), two encoder layers of 4 heads (128 units), the mean over the tokens."""

    def __init__(self, shape: Shape, classes: int, vocabulary: int, width: int = 64) -> None:
        super().__init__()
        self.base = Encoder(shape[0], vocabulary, width)
        self.head = nn.Linear(width, classes)


class Encoder(nn.Module):
    def __init__(self, length: int, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        # the fast path of evaluations cuts the padding off, and its kernels round differently
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        padded = x == PAD
        padded = padded & ~padded.all(1, keepdim=True)  # attention needs one token: an empty text attends to padding
        hidden = self.encoder(self.embedding(x) + self.positions[: x.shape[1]], src_key_padding_mask=padded)
        return mean_of_tokens(self.norm(hidden), x)


def mean_of_tokens(values: Tensor, tokens: Tensor) -> Tensor:
    """The mean N x F of values N x T x F over the positions that are not padding; 0 for an empty text."""
    real = (tokens != PAD).unsqueeze(2).to(values.dtype)
    return (values * real).sum(1) / real.sum(1).clamp(min=1)
