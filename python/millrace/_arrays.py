"""Arrays with LoD, and the element types that need help from numpy. Imported when the first array is passed."""

from __future__ import annotations

import numpy

from ._errors import UnimplementedError


class LodArray(numpy.ndarray):
    """A numpy array of sequences: rows of dim 0, divided by offsets.

    ``lod`` has the offsets of every level, outermost first: ``[[0, 2, 5]]`` are two sequences of 2 and 3 rows. Results
    of numpy functions are arrays with the same ``lod`` only if they are views of all rows.

    >>> words = LodArray([[1], [2], [3], [4], [5]], lod=[[0, 2, 5]], dtype="int64")
    >>> words.lod, words.shape
    ([[0, 2, 5]], (5, 1))
    """

    lod: list[list[int]]

    def __new__(cls, values, lod, dtype=None):
        array = numpy.asarray(values, dtype=dtype, order="C").view(cls)
        array.lod = [[int(offset) for offset in level] for level in lod]
        return array

    def __array_finalize__(self, other):
        lod = getattr(other, "lod", [])
        keeps_rows = self.ndim > 0 and getattr(other, "shape", ())[:1] == self.shape[:1]
        self.lod = lod if keeps_rows else []

    def __reduce__(self):
        make, arguments, state = super().__reduce__()
        return make, arguments, (state, self.lod)

    def __setstate__(self, state):
        super().__setstate__(state[0])
        self.lod = state[1]


def with_lod(array, lod):
    return LodArray(array, lod)


def as_bfloat16(bits):
    try:
        import ml_dtypes
    except ImportError as missing:
        raise UnimplementedError("arrays of bfloat16 without the Python package ml-dtypes",
                                 hint="pip install ml-dtypes") from missing
    return bits.view(ml_dtypes.bfloat16)


def plain(name, value):
    """An array of a type that DLPack has, and whether its elements are the bits of bfloat16."""
    if not isinstance(value, numpy.ndarray) and hasattr(value, "__dlpack__"):
        value = numpy.from_dlpack(value)
    array = numpy.asarray(value, order="C")
    if array.dtype.name == "bfloat16":
        return array.view(numpy.uint16), True
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > 16:
        raise TypeError(f"array '{name}': expected numbers, found elements of type {array.dtype}")
    if array.dtype.byteorder not in "=|<":
        array = array.astype(array.dtype.newbyteorder("="))
    return array, False
