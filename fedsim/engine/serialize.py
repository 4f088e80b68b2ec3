"""Flower objects in two parts for the object store: a small head, and the arrays' bytes as buffers that are not copied.

Plain pickling copies the bytes of a Flower `Array` with every transfer. Here they are handed over out of band (pickle
protocol 5), enter shared memory once, and are read there when the object is rebuilt.
"""

import io
import pickle
from typing import Any

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Array:
            return _array, (obj.dtype, obj.shape, obj.stype, pickle.PickleBuffer(obj.data))
        return NotImplemented


def serialize(value: Any) -> tuple[bytes, list[Bytes]]:
    """The head, and views of the bytes of every array."""
    buffers: list[pickle.PickleBuffer] = []
    head = io.BytesIO()
    _Pickler(head, protocol=5, buffer_callback=buffers.append).dump(value)
    return head.getvalue(), [np.frombuffer(b.raw(), np.uint8) for b in buffers]


def deserialize(head: bytes, buffers: list[Bytes]) -> Any:
    return pickle.loads(head, buffers=buffers)


def _array(dtype: str, shape: tuple[int, ...], stype: str, data: Bytes) -> Array:
    array = Array(dtype, shape, stype, b"")
    array.__dict__["data"] = data.data  # any buffer serves where Flower declares bytes; a copy would defeat the purpose
    return array
