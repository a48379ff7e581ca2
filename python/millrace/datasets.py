"""Training and inference from files of examples."""

from __future__ import annotations

import json
import os
from typing import Callable, Iterable, Mapping, NamedTuple

from . import _core
from ._arrow import arrow_sources, columns_of, is_parquet, parquet_sources
from ._errors import InvalidArgumentError
from ._options import fill, handle_of, listed
from .program import Program


class Epoch(NamedTuple):
    """What one pass over a data set gave."""

    batches: int  #: that were run
    examples: int  #: in these batches
    left_out: int  #: examples of batches that were not full, with ``drop_last``
    seconds: float  #: of the whole epoch
    wait_seconds: float  #: in which no example was available
    means: dict  #: of the fetches that were one float number in every batch, weighted by the examples of the batches
    last: dict  #: the fetches of the last batch

    def _repr_html_(self) -> str:
        import html

        rows = {"batches": self.batches, "examples": self.examples, "left out": self.left_out,
                "seconds": f"{self.seconds:.3f}", "seconds without an example": f"{self.wait_seconds:.3f}",
                **{f"mean of {name}": f"{mean:.6g}" for name, mean in self.means.items()}}
        cells = (f"<tr><th>{html.escape(name)}</th><td>{value}</td></tr>" for name, value in rows.items())
        return f"<table>{''.join(cells)}</table>"


class Dataset:
    """Examples in files; ``train_from_dataset`` of executors and trainers runs a program over them.

    Options: ``files`` (names and patterns; all of them may end in .parquet, which needs pyarrow), ``arrow`` (in place
    of them: an object with ``__arrow_c_stream__``, as a table of pyarrow or polars, or a function that returns one for
    every pass; a list of these, or a dict by name), ``use_vars`` (vars that the slots of a line feed), ``slots`` (in place of
    them: a file that describes a line, or its content as a dict or list), ``pipe_command`` (a shell command that
    every file is sent through), ``allow_pipe_command`` (that of ``slots`` may run), ``in_memory``, ``batch_size``,
    ``reader_threads``, ``drop_last``, ``seed``, ``divide`` ("none", "files", "examples"), ``reshuffle_epochs`` (in
    memory, with "examples": every :meth:`global_shuffle` reads another share), ``trainer``, ``trainers``.
    docs/data_files.md has the formats and which example is read when.
    """

    def __init__(self, program: Program, **options):
        """:param program: declares the vars that are fed; it may be another one than those that run"""
        for name in ("files", "use_vars"):
            if name in options:
                options[name] = [os.fspath(item) if isinstance(item, (str, os.PathLike)) else item.name
                                 for item in listed(options[name], name)]
        slots = options.get("slots")
        if isinstance(slots, (Mapping, list)):
            options["slots_text"] = json.dumps(options.pop("slots"))
        elif slots is not None:
            options["slots"] = os.fspath(slots)
        if isinstance(options.get("divide"), str):
            options["divide"] = _core.DatasetDivide[options["divide"]]
        if "arrow" in options:
            if options.get("files"):
                raise InvalidArgumentError("expected one of options.files and options.arrow")
            options["arrow"] = arrow_sources(options["arrow"])
        self._columns = columns_of(options)
        if is_parquet(options.get("files", ())):
            options["arrow"] = parquet_sources(options.pop("files"), self._columns)
        self._core = _core.Dataset.create(handle_of(program), fill(_core.DatasetOptions(), options))

    def set_files(self, files: Iterable[str | os.PathLike]):
        """Replaces the list of files; examples in memory are dropped."""
        files = listed([os.fspath(file) for file in files], "files")
        if is_parquet(files):
            self._core.set_arrow(parquet_sources(files, self._columns))
        else:
            self._core.set_files(files)

    def set_arrow(self, arrow):
        """Replaces the option ``arrow``; examples in memory are dropped."""
        self._core.set_arrow(arrow_sources(arrow))

    @property
    def fed_vars(self) -> list[str]:
        """Vars that the examples feed, in the order of a line."""
        return self._core.fed_vars()

    def load_into_memory(self):
        """Reads the examples (option ``in_memory``)."""
        self._core.load_into_memory()

    def preload(self):
        """The same in a thread; :meth:`wait_preload` waits for it."""
        self._core.preload()

    def wait_preload(self):
        """Waits for :meth:`preload`, and raises its error."""
        self._core.wait_preload()

    def release_memory(self):
        """Drops the examples in memory."""
        self._core.release_memory()

    @property
    def examples_in_memory(self) -> int:
        """0 while :meth:`preload` reads."""
        return self._core.examples_in_memory()

    def local_shuffle(self):
        """Shuffles the examples in memory; the order depends on the seed and the number of calls since they were
        loaded."""
        self._core.local_shuffle()

    def global_shuffle(self, trainers: int = 1, *, ranks=None):
        """Shuffles the examples of all trainers: several of them need ``divide="examples"`` and the same files.

        :param ranks: a :class:`Ranks`, all of which call it and have loaded files of their own: they exchange examples
        """
        if ranks is None:
            self._core.global_shuffle(trainers)
        elif trainers != 1:
            raise InvalidArgumentError("global_shuffle: expected one of trainers and ranks")
        else:
            self._core.exchange(ranks._core)


#: Receives batches done, examples of the last batch, fetches by name, and a line of text.
OnPrint = Callable[[int, int, dict, str], None]


def _epoch(dataset: Dataset, fetches: Iterable[str], on_print: OnPrint | None, print_period: int, first_batch: int,
           threads: int):
    """The arguments of an epoch for the extension."""
    return _core.EpochArguments(dataset._core, listed(fetches, "fetches"), on_print, print_period, first_batch, threads)


class TrainsFromDatasets:
    """Base of what trains from data sets; ``self._core`` does."""

    def train_from_dataset(self, dataset: Dataset, fetches: Iterable[str] = (), *, on_print: OnPrint | None = None,
                           print_period: int = 100, first_batch: int = 0, threads: int = 1) -> Epoch:
        """Runs one step for every batch of a data set.

        :param fetches: dense vars, computed in every batch
        :param on_print: called after every ``print_period``-th batch, with the number of batches that are done, the
            examples of the last one, its fetches by name, and a line of text; an exception ends the epoch
        :param first_batch: batches before it are read but not run, to continue an epoch
        :param threads: Hogwild threads of an executor or prepared program: each runs whole batches, all use the same
            variables; results then depend on the timing
        """
        return self._core.train_from_dataset(_epoch(dataset, fetches, on_print, print_period, first_batch, threads))


class InfersFromDatasets:
    """Base of what infers from data sets; ``self._core`` does."""

    def infer_from_dataset(self, dataset: Dataset, fetches: Iterable[str] = (), *, on_print: OnPrint | None = None,
                           print_period: int = 100, first_batch: int = 0, threads: int = 1) -> Epoch:
        """Runs the program for every batch of a data set; one that updates parameters is refused. Arguments as for
        ``train_from_dataset``."""
        return self._core.infer_from_dataset(_epoch(dataset, fetches, on_print, print_period, first_batch, threads))
