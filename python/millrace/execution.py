"""Running programs: scopes, executors, sessions, several devices."""

from __future__ import annotations

import operator
import os
import sys
import time
import warnings
from typing import Callable, Iterable, Mapping, NamedTuple

from . import _core
from ._options import arrays_by_name, fill, handle_of, listed, option_class, scope_of
from .datasets import Dataset, Epoch, InfersFromDatasets, OnPrint, TrainsFromDatasets, _epoch
from .program import Program


class Rows(NamedTuple):
    """Some rows of a matrix (SelectedRows): sparse gradients, and tables."""

    rows: object  #: row numbers; a repeated row is a sum
    height: int  #: number of rows of the whole matrix
    values: object  #: ``values[i]`` belongs to row ``rows[i]``


class Scope:
    """Variables by name, which stay between runs. Values are copied in and out.

    >>> scope = Scope()
    >>> scope["rate"] = [0.5]
    >>> scope["rate"], "rate" in scope, list(scope)
    (array([0.5]), True, ['rate'])
    """

    def __init__(self):
        self._core = _core.Scope()

    def __getitem__(self, name: str):
        """A dense var as a numpy array, with LoD as a LodArray."""
        return self._core.get(name)

    def __setitem__(self, name: str, value):
        if isinstance(value, Rows):
            self._core.set_rows(name, [operator.index(row) for row in value.rows], value.height, value.values)
        else:
            self._core.set(name, value)

    def __delitem__(self, name: str):
        if not self._core.has(name):
            raise KeyError(name)
        self._core.clear(name)

    def __contains__(self, name: str) -> bool:
        return self._core.has(name)

    def __iter__(self):
        return iter(self._core.names())

    def __len__(self) -> int:
        return len(self._core.names())

    def rows(self, name: str) -> Rows:
        """A var that holds some rows of a matrix."""
        return Rows(*self._core.get_rows(name))


def _filled(options, settings: dict):
    ranks = settings.get("ranks")
    return fill(options, settings if ranks is None else {**settings, "ranks": ranks._core})


class PreparedProgram(TrainsFromDatasets, InfersFromDatasets):
    """A program that was compiled for a scope; for many runs of it."""

    def __init__(self, core):
        self._core = core

    @property
    def inputs(self) -> list[str]:
        """Vars that feed ops set, in order."""
        return self._core.inputs()

    @property
    def outputs(self) -> list[str]:
        """Vars that fetch ops read, in order."""
        return self._core.outputs()

    def run(self, feeds: Mapping[str, object] | None = None, fetches: Iterable[str] = ()) -> dict:
        """Runs the program once.

        :param feeds: arrays by var name (numpy, anything with DLPack, lists), for this run only
        :param fetches: vars to return; empty: :attr:`outputs`
        :returns: numpy arrays by name, in the order of the fetches; :class:`Rows` for sparse gradients, and lists for
            lists of arrays (None for elements that were never written)
        """
        return self._core.run(arrays_by_name(feeds), listed(fetches, "fetches"))

    @property
    def random_position(self) -> int:
        """State of the random numbers of ops without a seed of their own; may be set."""
        return self._core.random_position

    @random_position.setter
    def random_position(self, position: int):
        self._core.random_position = position

    def plan(self) -> str:
        """Compiled ops and memory as text, for people."""
        return self._core.plan_text()


class Executor:
    """Runs programs with the variables of scopes.

    Options: ``threads``, ``seed``, ``optimize``, ``device`` ("cpu", "gpu:0"), ``bf16_products``, ``tf32_products``,
    ``inter_op``, ``debug_memory``, ``allow_dir``, ``ranks`` (:class:`Ranks`); docs/python.md has their meaning.
    """

    def __init__(self, **options):
        self._core = _core.Executor.create(_filled(_core.ExecutorOptions(), options))

    def prepare(self, program: Program, scope: Scope) -> PreparedProgram:
        """Compiles a copy of the program."""
        return PreparedProgram(self._core.prepare(handle_of(program), scope_of(scope)))

    def run(self, program: Program, scope: Scope, feeds: Mapping[str, object] | None = None,
            fetches: Iterable[str] = ()) -> dict:
        """Compiles and runs a program once: for startup programs. Steps are much faster with :meth:`prepare`."""
        return self._core.run(handle_of(program), scope_of(scope), arrays_by_name(feeds), listed(fetches, "fetches"))

    def train_from_dataset(self, program: Program, scope: Scope, dataset: Dataset, fetches: Iterable[str] = (), *,
                           on_print: OnPrint | None = None, print_period: int = 100, first_batch: int = 0,
                           threads: int = 1) -> Epoch:
        """Compiles a program and runs it once for every batch of a data set; see
        :meth:`PreparedProgram.train_from_dataset`."""
        return self._core.train_from_dataset(handle_of(program), scope_of(scope), _epoch(
            dataset, fetches, on_print, print_period, first_batch, threads))

    def infer_from_dataset(self, program: Program, scope: Scope, dataset: Dataset, fetches: Iterable[str] = (), *,
                           on_print: OnPrint | None = None, print_period: int = 100, first_batch: int = 0,
                           threads: int = 1) -> Epoch:
        """The same for a program that does not train; one that updates parameters is refused."""
        return self._core.infer_from_dataset(handle_of(program), scope_of(scope), _epoch(
            dataset, fetches, on_print, print_period, first_batch, threads))


class Session:
    """A program with variables of its own: the shortest way to run a saved model.

    Options: as for :class:`Executor` without ``inter_op``, and ``devices`` and ``loss`` for several CPU devices.
    """

    def __init__(self, program: Program, startup: Program | None = None, **options):
        """Opens a program and runs its startup program once."""
        self._core = _core.Session.open(handle_of(program), None if startup is None else handle_of(startup, "startup"),
                                        fill(_core.SessionOptions(), options))

    @classmethod
    def open_model(cls, folder: str | os.PathLike, **options) -> Session:
        """Opens an inference model: a folder with ``__model__`` or ``*.pdmodel`` and its parameters."""
        session = cls.__new__(cls)
        session._core = _core.Session.open_model(os.fspath(folder), fill(_core.SessionOptions(), options))
        return session

    @property
    def inputs(self) -> list[str]:
        return self._core.inputs()

    @property
    def outputs(self) -> list[str]:
        return self._core.outputs()

    def run(self, feeds: Mapping[str, object] | None = None, fetches: Iterable[str] = ()) -> dict:
        """Runs the program once; see :meth:`PreparedProgram.run`."""
        return self._core.run(arrays_by_name(feeds), listed(fetches, "fetches"))

    def __getitem__(self, name: str):
        """A persistable var."""
        return self._core.get(name)

    def __setitem__(self, name: str, value):
        self._core.set(name, value)

    def load_params(self, path: str | os.PathLike):
        """Reads parameters: npz, a combined file, or a folder with one file per var.

        Vars that an npz archive lacks keep their values, and a warning names them.
        """
        kept = self._core.load_params(os.fspath(path))
        if kept:
            warnings.warn(f"{os.fspath(path)} has no values for {', '.join(kept)}", stacklevel=2)

    def save_params(self, path: str | os.PathLike):
        """Writes the persistable vars: a folder (a path that ends in ``/``) or one combined file."""
        self._core.save_params(os.fspath(path))

    def save_model(self, folder: str | os.PathLike, inputs: Iterable[str], outputs: Iterable[str]):
        """Writes the part of the program that computes the outputs, as an inference model."""
        self._core.save_model(os.fspath(folder), listed(inputs, "inputs"), listed(outputs, "outputs"))


ExecutionStrategy = option_class(_core.ExecutionStrategy, "How a program runs on several devices, as in the original.")
BuildStrategy = option_class(_core.BuildStrategy, "How the program of each device is built, as in the original.")
BuildStrategy.ReduceStrategy = _core.ReduceStrategy
BuildStrategy.GradientScaleStrategy = _core.GradientScaleStrategy


class ParallelExecutor(TrainsFromDatasets, InfersFromDatasets):
    """Trains or evaluates a program on several CPU devices of this process: feeds are divided along dim 0.

    Options: ``devices``, ``loss_name``, ``exec_strategy``, ``build_strategy``, ``split``, ``threads``, ``optimize``,
    ``bf16_products``, ``debug_memory``, ``seed``, ``wait_timeout_ms``, ``allow_dir``, ``ranks`` (:class:`Ranks` whose
    devices train together).
    """

    def __init__(self, program: Program, scope: Scope, *, share_vars_from: ParallelExecutor | None = None, **options):
        self._shared = share_vars_from  # must outlive this one
        self._core = _core.ParallelExecutor.create(
            handle_of(program), scope_of(scope), _filled(_core.ParallelOptions(), options),
            None if share_vars_from is None else share_vars_from._core)

    def run(self, feeds, fetches: Iterable[str]) -> dict:
        """Runs one step. ``feeds``: arrays that are divided, or a list with the arrays of each device."""
        if isinstance(feeds, Mapping):
            return self._core.run(arrays_by_name(feeds), listed(fetches, "fetches"))
        return self._core.run_each([arrays_by_name(device) for device in feeds], listed(fetches, "fetches"))

    def run_unmerged(self, feeds: Mapping[str, object], fetches: Iterable[str]) -> dict:
        """The same without joining: one list of arrays for each fetch."""
        return self._core.run_unmerged(arrays_by_name(feeds), listed(fetches, "fetches"))

    def get(self, device: int, name: str):
        """A persistable var of a device."""
        return self._core.get(device, name)

    def spread(self, name: str):
        """Copies the present value of a var of the scope to the other devices."""
        self._core.spread(name)

    @property
    def device_count(self) -> int:
        return self._core.device_count()

    @property
    def runs(self) -> int:
        """Number of runs so far, including failed ones."""
        return self._core.runs()

    @property
    def remarks(self) -> list[str]:
        """Options that had no effect or were changed."""
        return self._core.remarks()

    def drop_local_exe_scopes(self):
        """Destroys the temporaries of all devices now."""
        self._core.drop_local_exe_scopes()

    def plan(self) -> str:
        """Passes, ops and memory of every device as text, for people."""
        return self._core.plan_text()


def train(step: Callable[..., Mapping], batches: Iterable[Mapping[str, object]], fetches: Iterable[str], *,
          progress: bool | None = None, report_every: float = 1.0) -> dict[str, list]:
    """Runs a step for each batch and collects what is fetched.

    :param step: ``prepared.run``, ``trainer.step``, ``parallel_executor.run``: takes feeds and fetches
    :param progress: show steps and the first fetch on stderr; None: if that is a terminal
    :param report_every: seconds between two lines of progress
    :returns: one list for each fetch: floats for results with one element, arrays otherwise
    """
    fetches = listed(fetches, "fetches")
    show = sys.stderr.isatty() if progress is None else progress
    total = len(batches) if hasattr(batches, "__len__") else None
    history: dict[str, list] = {name: [] for name in fetches}
    begin = last = time.monotonic()
    count = 0
    for count, batch in enumerate(batches, 1):
        for name, value in step(batch, fetches).items():
            history[name].append(value.item() if value.size == 1 else value)
        now = time.monotonic()
        if show and (now - last >= report_every or count == total):
            last = now
            _show_progress(count, total, now - begin, fetches, history)
    if show and count:
        sys.stderr.write("\n")
    return history


def _show_progress(count, total, seconds, fetches, history):
    of = f"/{total}" if total else ""
    rate = count / seconds if seconds > 0 else 0.0
    value = history[fetches[0]][-1] if fetches else ""
    shown = f" {fetches[0]} {value:.6g}" if isinstance(value, float) else ""
    bar = ""
    if total:
        filled = 30 * count // total
        bar = f" [{'#' * filled}{'.' * (30 - filled)}]"
    sys.stderr.write(f"\rstep {count}{of}{bar} {rate:.1f} steps/s{shown}   ")
    sys.stderr.flush()
