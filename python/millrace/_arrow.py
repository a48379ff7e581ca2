"""Parquet files and other objects whose rows are examples: what datasets.py passes to the extension."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping

from ._errors import InvalidArgumentError, NotFoundError, UnimplementedError


class ParquetFile:
    """The rows of a Parquet file as an Arrow stream; every call starts again from the first row.

    pyarrow decodes one batch at a time, in the thread that reads it, and only the columns that are named.
    """

    rows_of_batch = 16384

    def __init__(self, path: str, columns: list[str] | None):
        self.path, self.columns = path, columns

    def __arrow_c_stream__(self, requested_schema=None):
        import pyarrow
        from pyarrow import parquet

        file = parquet.ParquetFile(self.path)
        # a name with a dot would select a member of a struct
        known = set(file.schema_arrow.names)
        columns = None if self.columns is None else [name for name in self.columns if name in known]
        batches = file.iter_batches(batch_size=self.rows_of_batch, columns=columns)
        schema = file.schema_arrow
        if columns is not None:
            schema = pyarrow.schema([schema.field(schema.get_field_index(name)) for name in schema.names
                                     if name in set(columns)])
        return pyarrow.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__()


class Called:
    """What a function returns, as an Arrow stream: every call asks it for another one."""

    def __init__(self, function):
        self.function = function

    def __arrow_c_stream__(self, requested_schema=None):
        return self.function().__arrow_c_stream__()


def is_parquet(files) -> bool:
    """Whether a list of files has Parquet files; then all must be such files."""
    parquet = [file for file in files if file.endswith(".parquet")]
    if parquet and len(parquet) != len(files):
        other = next(file for file in files if not file.endswith(".parquet"))
        raise InvalidArgumentError(f"files: '{parquet[0]}' is a Parquet file, '{other}' is not")
    return bool(parquet)


def parquet_sources(files, columns: list[str] | None) -> list[tuple]:
    """Sources for the extension. Patterns are matched, in the order of the names."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise UnimplementedError(f"Parquet files, without the package pyarrow ({error})",
                                 hint="pip install pyarrow") from None
    sources = {}
    for pattern in files:
        found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
        if not found:
            raise NotFoundError(f"options.files: no file matches '{pattern}'")
        for path in found:
            for other in sources:
                if os.path.samefile(other, path):
                    raise InvalidArgumentError(f"options.files: '{other}' and '{path}' are the same file")
            sources[path] = ParquetFile(path, columns)
    return list(sources.items())


def arrow_sources(arrow) -> list[tuple]:
    """Sources for the extension, from the option ``arrow``: an object, a list of them, or a dict by name."""
    if hasattr(arrow, "__arrow_c_stream__") or callable(arrow):
        arrow = [arrow]
    named = arrow.items() if isinstance(arrow, Mapping) else ((f"arrow[{i}]", item) for i, item in enumerate(arrow))
    sources = []
    for name, item in named:
        if not hasattr(item, "__arrow_c_stream__"):
            if not callable(item):
                raise TypeError(f"{name}: expected an object with __arrow_c_stream__, or a function that returns one, "
                                f"found {type(item).__name__}")
            item = Called(item)
        sources.append((name, item))
    return sources


def columns_of(options: Mapping) -> list[str] | None:
    """The columns that a description of slots names. None: not known, the extension reports why."""
    if options.get("use_vars"):
        return list(options["use_vars"])
    try:
        if options.get("slots"):
            with open(options["slots"], encoding="utf-8") as file:
                slots = json.load(file)
        else:
            slots = json.loads(options["slots_text"])
        names = []
        for slot in slots["slots"] if isinstance(slots, dict) else slots:
            columns = slot.get("columns", slot["name"]) if isinstance(slot, dict) else slot
            names += [columns] if isinstance(columns, str) else columns
        return names
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
