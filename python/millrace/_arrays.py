"""Arrays with LoD, and the element types that need help from numpy. Imported when the first array is passed."""

from __future__ import annotations

import operator

import numpy

from ._errors import UnimplementedError


# Functions of numpy that keep the order of rows.
_SAME_ROWS = frozenset((numpy.around, numpy.clip, numpy.copy, numpy.empty_like, numpy.full_like, numpy.nan_to_num,
                        numpy.ones_like, numpy.round, numpy.zeros_like))


class LodArray(numpy.ndarray):
    """A numpy array of sequences: rows of dim 0, divided by offsets.

    ``lod`` has the offsets of every level, outermost first: ``[[0, 2, 5]]`` are two sequences of 2 and 3 rows. Results
    have it only if they have all rows in the same order: those of operators, ufuncs, ``astype``, ``copy``, slices like
    ``words[:, 1:]``. A permutation or reversal of the rows, and most functions of numpy, return arrays without.

    >>> words = LodArray([[1], [2], [3], [4], [5]], lod=[[0, 2, 5]], dtype="int64")
    >>> words.lod, words.shape
    ([[0, 2, 5]], (5, 1))
    """

    lod: list[list[int]]

    def __new__(cls, values, lod, dtype=None):
        array = numpy.asarray(values, dtype=dtype, order="C").view(cls)
        array.lod = [[operator.index(offset) for offset in level] for level in lod]
        return array

    def __array_finalize__(self, other):
        lod = getattr(other, "lod", [])
        keeps_rows = self.ndim > 0 and getattr(other, "shape", ())[:1] == self.shape[:1]
        self.lod = lod if keeps_rows else []

    def __getitem__(self, index):
        rows = index[0] if isinstance(index, tuple) and index else index
        keeps_rows = rows is Ellipsis or isinstance(rows, slice) and rows.indices(len(self)) == (0, len(self), 1)
        return _with_rows(super().__getitem__(index), keeps_rows)

    def __array_function__(self, function, types, arguments, options):
        return _with_rows(super().__array_function__(function, types, arguments, options), function in _SAME_ROWS)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        arrays = [_plain_view(value) for value in inputs]
        if out is not None:
            options["out"] = tuple(_plain_view(array) for array in out)
        result = getattr(ufunc, method)(*arrays, **options)
        if out is not None:
            return out[0] if len(out) == 1 else out
        # element by element; a product of matrices has the rows of the first operand
        keeps_rows = method == "__call__" and (ufunc.signature is None or inputs[0] is self)
        if not keeps_rows or getattr(result, "ndim", 0) != self.ndim or result.shape[:1] != self.shape[:1]:
            return result
        return LodArray(result, self.lod)

    def transpose(self, *axes):
        return _with_rows(super().transpose(*axes), self.ndim < 2)

    def take(self, *arguments, **options):
        return _with_rows(super().take(*arguments, **options), False)

    def swapaxes(self, first, second):
        return _with_rows(super().swapaxes(first, second), False)

    @property
    def T(self):
        return self.transpose()

    def __reduce__(self):
        make, arguments, state = super().__reduce__()
        return make, arguments, (state, self.lod)

    def __setstate__(self, state):
        super().__setstate__(state[0])
        self.lod = state[1]


def _with_rows(result, keeps_rows):
    """Removes the LoD of a result whose rows may have another order."""
    if isinstance(result, LodArray) and not keeps_rows:
        result.lod = []
    return result


def _plain_view(value):
    return value.view(numpy.ndarray) if isinstance(value, LodArray) else value


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
    if numpy.ma.is_masked(value):
        raise TypeError(f"array '{name}': expected numbers, found masked elements")
    try:
        array = numpy.asarray(value, order="C")
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"array '{name}': {error}") from None
    if array.dtype.name == "bfloat16":
        return array.view(numpy.uint16), True
    longest = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}  # longer ones are long double
    if array.dtype.itemsize > longest.get(array.dtype.kind, 0):
        raise TypeError(f"array '{name}': expected numbers, found elements of type {array.dtype}")
    if array.dtype.byteorder not in "=|<":
        array = array.astype(array.dtype.newbyteorder("="))
    return array, False
