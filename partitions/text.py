"""Texts as token ids: 0 is padding, 1 any token outside the vocabulary, the others are tokens of the training texts.

Words are lower-cased runs of letters, digits and apostrophes; every other visible character is a token of its own. With
`tokenizer=characters` every character is a token, capitals and blanks included. The vocabulary is made of the most
frequent tokens of the training texts, ties in the order of their characters. A text is cut after `length` tokens and
padded on the right.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions.split import Array

PAD, UNKNOWN, FIRST = 0, 1, 2
ESCAPED = re.compile(r"\\([\\n])")  # in a vocabulary's file
TOKEN = re.compile(r"[\w']+|[^\w\s]")
COUNTED = 2_000_000  # different tokens that are counted at a time; beyond that the rarest so far are forgotten


@dataclass(frozen=True)
class Tokenizer:
    """How texts become token ids; `file` and `alphabet` are vocabularies that are known beforehand."""

    unit: str = "words"
    length: int = 200
    size: int = 20_000  # different token ids at most, PAD and UNKNOWN included
    file: str = ""  # a token in every line
    alphabet: str = ""  # characters

    @staticmethod
    def of(params: DataParams, alphabet: str = "") -> "Tokenizer":
        unit = "characters" if alphabet else params.tokenizer
        return Tokenizer(unit, params.length, params.vocabulary, params.tokens, alphabet)

    @property
    def is_known(self) -> bool:
        """Whether its vocabulary does not depend on texts."""
        return bool(self.file or self.alphabet)

    def tokens(self, text: str) -> Sequence[str]:
        return text if self.unit == "characters" else TOKEN.findall(text.lower())

    def counter(self) -> "TokenCounts":
        return TokenCounts(self)

    def vocabulary(self, counts: "TokenCounts") -> dict[str, int]:
        """Token -> id: of the known vocabulary, else of the most frequent tokens that were counted."""
        listed: Sequence[str] = self.alphabet or (self._listed() if self.file else counts.ranked()[: self.size - FIRST])
        return {token: number for number, token in enumerate(listed, FIRST)}

    def encoded(self, texts: Iterable[str], vocabulary: dict[str, int]) -> Array:
        """Token ids, N x length."""
        rows = [[vocabulary.get(token, UNKNOWN) for token in self.tokens(text)[: self.length]] for text in texts]
        out = np.full((len(rows), self.length), PAD, np.int32)
        for row, ids in zip(out, rows, strict=True):
            row[: len(ids)] = ids
        return out

    def _listed(self) -> list[str]:
        """The tokens of the file; raises ConfigError if it cannot be read or names one twice."""
        try:
            found = Path(self.file).read_text(encoding="utf8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"data.tokens={self.file} cannot be read: {error}") from error
        found = [ESCAPED.sub(lambda match: "\n" if match[1] == "n" else "\\", line) for line in found if line]
        repeated = [token for token, count in Counter(found).items() if count > 1]
        if repeated or not found:
            told = f"{repeated[0]!r} stands there twice" if repeated else "it is empty"
            raise ConfigError(f"data.tokens={self.file} must have one token in every line, but {told}")
        return found


class TokenCounts:
    """How often tokens occur in the texts that were added."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._counts = tokenizer, Counter[str]()

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._counts.update(self._tokenizer.tokens(text))
        if len(self._counts) > COUNTED:
            self._counts = Counter(dict(self._counts.most_common(COUNTED // 2)))

    def ranked(self) -> list[str]:
        """The most frequent first, ties in the order of their characters."""
        return sorted(self._counts, key=lambda token: (-self._counts[token], token))


def listed(tokens: Iterable[str]) -> str:
    """The content of a vocabulary's file: a token in every line, in which \\n is a line break and \\\\ a backslash."""
    return "".join(token.replace("\\", "\\\\").replace("\n", "\\n") + "\n" for token in tokens)


def decoded(texts: Array, where: str) -> list[str]:
    """The texts of an array of str, or of bytes in UTF-8; raises ConfigError for another encoding."""
    try:
        return [str(text) for text in (np.char.decode(texts, "utf8") if texts.dtype.kind == "S" else texts)]
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} holds text that is not UTF-8: {error}") from error
