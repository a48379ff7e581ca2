"""millrace: distributes and runs serialized static-graph programs of PaddlePaddle fluid.

Programs are read, looked at and edited (:class:`Program`), run on one device (:class:`Executor`, :class:`Session`) or
on several (:class:`ParallelExecutor`), turned into training programs (:func:`minimize`), and distributed over trainers
and parameter servers (:func:`transpile`), which run in this process (:class:`ParameterServer`, :class:`Trainer`,
:class:`Fleet`) or by the command-line tools. :mod:`millrace.migrate` reads and writes models of other frameworks. Errors are subclasses
of :class:`Error`.
"""

import importlib

from . import _core, io, optimizer
from ._errors import (DistributedError, Error, ExecutionError, InternalError, InvalidArgumentError, InvalidDataError,
                      InvalidProgramError, IoError, NotFoundError, ResourceError, UnimplementedError, UsageError)
from .datasets import Dataset, Epoch
from .execution import (BuildStrategy, ExecutionStrategy, Executor, ParallelExecutor, PreparedProgram, Rows, Scope,
                        Session, train)
from .io import load_inference_model, save_inference_model
from .jobs import (Communicator, Connection, Fleet, LiveModel, ParameterServer, Ranks, RoleFiles, ServerCheckpoint,
                   Trainer, TranspilerStrategy, server_files, trainer_files)
from .program import Block, Difference, Op, Problem, Program, Var, op_types, pass_names, run_passes
from .training import Backward, Minimized, append_backward, minimize, minimize_options
from .transpiler import DistributeTranspiler, DistributeTranspilerConfig, WrittenJob, transpile

__version__ = _core.version_info()["version"]


def version_info() -> dict:
    """Version, commit, build type and compiler of the library."""
    return _core.version_info()


def __getattr__(name: str):
    if name == "migrate":
        return importlib.import_module(".migrate", __name__)
    # numpy is imported with the first array, not with the package.
    if name == "LodArray":
        from ._arrays import LodArray

        return LodArray
    raise AttributeError(f"module 'millrace' has no attribute '{name}'")


__all__ = [
    "Backward", "Block", "BuildStrategy", "Communicator", "Connection", "Dataset", "Difference",
    "DistributeTranspiler", "DistributeTranspilerConfig", "DistributedError", "Epoch", "Error", "ExecutionError",
    "ExecutionStrategy", "Executor", "Fleet", "InternalError", "InvalidArgumentError", "InvalidDataError",
    "InvalidProgramError", "IoError", "LiveModel", "LodArray", "Minimized", "NotFoundError", "Op", "ParallelExecutor",
    "ParameterServer", "PreparedProgram", "Problem", "Program", "Ranks", "ResourceError", "RoleFiles", "Rows",
    "Scope", "ServerCheckpoint", "Session", "Trainer", "TranspilerStrategy", "UnimplementedError", "UsageError", "Var",
    "WrittenJob", "append_backward", "io", "load_inference_model", "minimize", "minimize_options", "op_types", "optimizer",
    "pass_names", "run_passes", "save_inference_model", "server_files", "train", "trainer_files", "transpile",
    "version_info",
]
