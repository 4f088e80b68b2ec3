"""Texts as token ids: 0 is padding, 1 any token outside the vocabulary, the others are tokens of the training data.

Words are lower-cased runs of letters, digits and apostrophes; every other visible character is a token of its own. The
most frequent tokens of the training texts are the vocabulary, ties in the order of the alphabet. A text is cut after
`LENGTH` tokens and padded on the right.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fedsim.errors import ConfigError
from fedsim.partitions.split import Array

PAD, UNKNOWN, FIRST = 0, 1, 2
LENGTH, VOCABULARY = 200, 20_000  # tokens of a text; different ids at most, PAD and UNKNOWN included
TOKEN = re.compile(r"[\w']+|[^\w\s]")


def tokens(text: str) -> list[str]:
    return TOKEN.findall(text.lower())


def decoded(texts: Array, where: str) -> list[str]:
    """The texts of an array of str, or of bytes in UTF-8; raises ConfigError for another encoding."""
    try:
        return [str(text) for text in (np.char.decode(texts, "utf8") if texts.dtype.kind == "S" else texts)]
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} holds text that is not UTF-8: {error}") from error


def vocabulary_of(texts: Iterable[str], size: int = VOCABULARY) -> dict[str, int]:
    """Token -> id, of the most frequent tokens of `texts`."""
    counts = Counter(token for text in texts for token in tokens(text))
    ranked = sorted(counts, key=lambda token: (-counts[token], token))[: size - FIRST]
    return {token: number for number, token in enumerate(ranked, FIRST)}


def encoded(texts: Sequence[str], vocabulary: dict[str, int], length: int = LENGTH) -> Array:
    """Token ids, N x length."""
    out = np.full((len(texts), length), PAD, np.int32)
    for row, text in zip(out, texts, strict=True):
        ids = [vocabulary.get(token, UNKNOWN) for token in tokens(text)[:length]]
        row[: len(ids)] = ids
    return out
