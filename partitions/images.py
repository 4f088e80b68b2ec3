"""Pixels of image files and of encoded images. An image of more pixels than Pillow deems safe is refused unread."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import ConfigError
from fedsim.partitions.large_arrays import BYTES, Scratch
from fedsim.partitions.split import Array

Source = Path | bytes  # a file, or an encoded image itself
GREY, OVER_8_BITS = ("1", "L", "LA"), ("I", "F")  # modes of Pillow


class Collection:
    """Images of one size and number of channels; `side` scales all of them to so many pixels a side, 0: none.

    The first pass, `look`, sees headers alone; then `pixels` decodes. Grey images stay grey unless others have color.
    """

    def __init__(self, side: int) -> None:
        self._side, self._first, self._color = side, ("", (0, 0)), False

    def look(self, source: Source, where: str) -> None:
        """Raises ConfigError for an image that cannot be read, has another size, or more than 8 bits a channel."""
        with _opened(source, where) as image:
            size, mode = image.size, image.mode
        if not self._first[0]:
            self._first = where, size
        first, expected = self._first
        if not self._side and size != expected:
            raise ConfigError(
                f"{where} is {size[0]}x{size[1]} but {first} is {expected[0]}x{expected[1]} (width x height): "
                "bring all images to one size first, or scale them with data.size=N"
            )
        if mode.split(";")[0] in OVER_8_BITS:
            raise ConfigError(f"{where} has more than 8 bits a channel: convert it, or bring the data as an npz file")
        self._color |= mode not in GREY

    def pixels(self, source: Source, where: str) -> Array:
        """H x W, or H x W x 3."""
        with _opened(source, where) as image:
            image = image.convert("RGB" if self._color else "L")
            if self._side:
                image = image.resize((self._side, self._side), _bilinear())
            return np.asarray(image)


def stacked(files: Sequence[Path], side: int, scratch: Scratch) -> Array:
    """The pixels of all files, N x H x W or N x H x W x 3; all headers are looked at before any image is decoded."""
    collection, stack = Collection(side), scratch.stack()
    for file in files:
        collection.look(file, str(file))
    held: list[Array] = []
    for number, file in enumerate(files, 1):
        held.append(collection.pixels(file, str(file)))
        if number == len(files) or held[0].nbytes * len(held) >= BYTES:
            stack.add(np.stack(held))
            held = []
    return stack.array()


@contextmanager
def _opened(source: Source, where: str) -> Iterator[Any]:
    """An image of Pillow; one error for the many exceptions of its decoders, which names the file."""
    from PIL import Image  # needed only to prepare a dataset

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(BytesIO(source) if isinstance(source, bytes) else source) as image:
                yield image
    except ConfigError:
        raise
    except Exception as error:
        told = str(error).splitlines()[0] if str(error) else repr(error)
        raise ConfigError(f"{where} cannot be read as an image: {told}") from error


def _bilinear() -> Any:
    from PIL import Image

    return Image.Resampling.BILINEAR
