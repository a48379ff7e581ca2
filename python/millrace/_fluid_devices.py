"""Devices, and how programs run on several of them, with the names of ``paddle.fluid``; millrace.fluid has what is
public."""

from __future__ import annotations

import os
import warnings

from ._errors import InvalidArgumentError, UnimplementedError
from ._options import names_of
from .execution import BuildStrategy, Scope
from .execution import ParallelExecutor as _ParallelExecutor
from .program import Program


class CPUPlace:
    """Ops run on the processor."""

    device = "cpu"


class CUDAPlace:
    """Ops run on a GPU."""

    def __init__(self, device_id: int):
        self.device = f"gpu:{device_id}"


def cpu_num() -> int:
    """The number of CPU devices that the environment states."""
    stated = os.environ.get("CPU_NUM", "1")
    if not stated.isdecimal() or int(stated) < 1:
        raise InvalidArgumentError(f"CPU_NUM: expected the number of CPU devices, at least 1, found '{stated}'")
    return int(stated)


def count_of(places) -> int:
    """The number of CPU devices of ``with_data_parallel``."""
    if places is None:
        return cpu_num()
    if isinstance(places, int) and places > 0:
        return places
    if not isinstance(places, (list, tuple)) or not places:
        raise InvalidArgumentError(f"places: expected a list of CPUPlace() or the number of devices, found {places!r}")
    if not all(isinstance(place, CPUPlace) for place in places):
        raise UnimplementedError("fluid.CompiledProgram.with_data_parallel with places other than CPUPlace()")
    return len(places)


# Fields that would only change how fast one device runs a program.
_SPEED_FIELDS = frozenset((
    "cache_runtime_context", "enable_addto", "enable_auto_fusion", "enable_backward_optimizer_op_deps",
    "enable_inplace", "enable_sequential_execution", "fix_op_run_order", "fuse_adamw", "fuse_all_optimizer_ops",
    "fuse_all_reduce_ops", "fuse_bn_act_ops", "fuse_bn_add_act_ops", "fuse_broadcast_ops",
    "fuse_elewise_add_act_ops", "fuse_gemm_epilogue", "fuse_relu_depthwise_conv", "fused_attention",
    "fused_feedforward", "memory_optimize", "mkldnn_enabled_op_types", "remove_unnecessary_lock", "share_updates",
    "sync_batch_norm"))


def check_one_device(strategy: BuildStrategy | None):
    """Without ``with_data_parallel`` a program runs as if no strategy was given."""
    plain = BuildStrategy()
    for name in [] if strategy is None else names_of(strategy):
        if getattr(strategy, name) == getattr(plain, name):
            continue
        if name not in _SPEED_FIELDS:
            raise UnimplementedError(f"fluid.CompiledProgram with build_strategy.{name}, without with_data_parallel")
        warnings.warn(f"build_strategy.{name} has no effect without with_data_parallel", stacklevel=4)


def parallel_executor(program: Program, scope: Scope, shared: _ParallelExecutor | None, options: dict):
    """Runs a program on several CPU devices, and warns of each field that changes nothing."""
    if getattr(program, "_role", None) is not None:
        raise UnimplementedError("programs of distributed jobs on several devices by CompiledProgram or "
                                 "ParallelExecutor",
                                 hint="DistributeTranspiler(options={'devices': {'devices': 2, 'loss_name': LOSS}})")
    made = _ParallelExecutor(program, scope, share_vars_from=shared,
                             **{name: value for name, value in options.items() if value is not None})
    for remark in made.remarks:
        if "changes nothing" in remark:
            warnings.warn(remark, stacklevel=4)
    return made
