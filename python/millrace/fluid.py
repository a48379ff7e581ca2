"""The names of ``paddle.fluid`` that scripts use around a program, so that a script of 2019 needs few changed lines.

Programs come from files (``fluid.load_program``) instead of ``fluid.layers``; the rest stays::

    import millrace.fluid as fluid

    main, startup = fluid.load_program("main.pb"), fluid.load_program("startup.pb")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    loss, = exe.run(main, feed={"x": x, "y": y}, fetch_list=["mean_0.tmp_0"])

With a :class:`DistributeTranspiler`, ``exe.run`` of a server's program serves until the trainers have finished, and
``exe.run`` of a trainer's program is a step; ``exe.close()`` ends the trainer. :class:`FleetTranspiler` and
:class:`DistributedTranspiler` are the fleet objects of such jobs, whose ``stop_worker()`` ends the trainer. What is not
here raises :class:`millrace.UnimplementedError`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import warnings
import weakref

from . import io as _io
from . import jobs as _jobs
from ._errors import InvalidArgumentError, UnimplementedError
from ._fluid_dataset import DatasetFactory, InMemoryDataset, QueueDataset
from ._fluid_dataset import run_from_dataset as _run_from_dataset
from ._fluid_devices import CPUPlace, CUDAPlace, check_one_device, count_of, cpu_num, parallel_executor
from ._fluid_fleet import (DistributedStrategy, DistributedTranspiler, FleetTranspiler, MPISymetricRoleMaker,
                           PaddleCloudRoleMaker, Role, StrategyFactory, UserDefinedRoleMaker)
from ._options import names_of
from .execution import BuildStrategy, ExecutionStrategy, Rows, Scope
from .execution import Executor as _Executor
from .execution import ParallelExecutor as _ParallelExecutor
from .execution import PreparedProgram as _PreparedProgram
from .program import Program
from .training import minimize as _minimize
from .transpiler import DistributeTranspiler as _DistributeTranspiler
from .transpiler import DistributeTranspilerConfig
from .transpiler import transpile as _write_job

__all__ = [
    "BuildStrategy", "CPUPlace", "CUDAPlace", "CompiledProgram", "DatasetFactory", "DistributeTranspiler",
    "DistributeTranspilerConfig", "DistributedStrategy", "DistributedTranspiler", "ExecutionStrategy", "Executor",
    "FleetTranspiler", "InMemoryDataset", "MPISymetricRoleMaker", "PaddleCloudRoleMaker", "ParallelExecutor", "Program",
    "QueueDataset", "Role", "Rows", "Scope", "StrategyFactory", "UserDefinedRoleMaker", "default_main_program",
    "default_startup_program", "global_scope", "io", "load_program", "optimizer", "program_guard", "scope_guard",
]


class _State:
    """The defaults that the original keeps for a process."""

    scopes = [Scope()]
    programs = [(Program(), Program())]


def load_program(path) -> Program:
    """Reads a program: ``__model__``, ``.pb``, ``.pdmodel``, or the text form."""
    return Program.read(path)


def global_scope() -> Scope:
    return _State.scopes[-1]


@contextlib.contextmanager
def scope_guard(scope: Scope):
    """Within it, ``global_scope()`` is the given scope."""
    _State.scopes.append(scope)
    try:
        yield
    finally:
        _State.scopes.pop()


def default_main_program() -> Program:
    return _State.programs[-1][0]


def default_startup_program() -> Program:
    return _State.programs[-1][1]


@contextlib.contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None):
    """Within it, the default programs are the given ones."""
    _State.programs.append((main_program, startup_program or default_startup_program()))
    try:
        yield
    finally:
        _State.programs.pop()


def _expect(what: str, **arguments):
    """Refuses arguments with another value than the only one that has a meaning here: name = (value, that one)."""
    for name, (value, only) in arguments.items():
        if value != only:
            raise UnimplementedError(f"{what} with {name}={value!r}")


def _names(fetch_list) -> list[str]:
    return [item if isinstance(item, str) else item.name for item in fetch_list or []]


class CompiledProgram:
    """A program with the way it runs on several CPU devices."""

    def __init__(self, program: Program, build_strategy: BuildStrategy | None = None):
        self._program = program
        self._options = {"build_strategy": build_strategy}
        self._parallel = False
        self._runners: dict = {}

    def with_data_parallel(self, loss_name: str = "", build_strategy=None, exec_strategy=None,
                           share_vars_from: CompiledProgram | None = None, places=None) -> CompiledProgram:
        """Feeds are divided over the places; the number of CPU devices is that of ``places`` (a list, or a number),
        else of the variable CPU_NUM, else 1."""
        if self._parallel:
            raise InvalidArgumentError("with_data_parallel() was called before; make another CompiledProgram")
        self._options.update(devices=count_of(places), loss_name=loss_name or "", exec_strategy=exec_strategy,
                             build_strategy=build_strategy or self._options["build_strategy"])
        self._parallel = True
        self._shared = share_vars_from
        return self

    def _runner(self, scope: Scope) -> _ParallelExecutor:
        if scope not in self._runners:
            shared = None if self._shared is None else self._shared._runner(scope)
            self._runners[scope] = parallel_executor(self._program, scope, shared, self._options)
        return self._runners[scope]

    def _alone(self) -> Program:
        """The program, to run on one device."""
        check_one_device(self._options["build_strategy"])
        return self._program


class Executor:
    """Runs programs with the variables of ``global_scope()``."""

    def __init__(self, place=None, **options):
        """:param options: of :class:`millrace.Executor`"""
        self._device = (place or CPUPlace()).device
        self._core = _Executor(device=self._device, **options)
        self._prepared: dict = {}
        self._trainers: dict = {}

    def run(self, program=None, feed=None, fetch_list=None, feed_var_name: str = "feed", fetch_var_name: str = "fetch",
            scope: Scope | None = None, return_numpy: bool = True, use_program_cache: bool = False) -> list:
        """Runs a program once and returns a list in the order of ``fetch_list``. Compiled programs are kept, whatever
        ``use_program_cache`` is; ``return_numpy`` is without effect: arrays with LoD are LodArrays."""
        _expect("fluid.Executor.run", feed_var_name=(feed_var_name, "feed"), fetch_var_name=(fetch_var_name, "fetch"))
        program = program or default_main_program()
        if isinstance(program, CompiledProgram) and not program._parallel:
            program = program._alone()
        role = getattr(program, "_role", None)
        if role is not None and role.is_server and not role.is_startup:
            role.serve()
            return []
        runner = self._runner(program, scope or global_scope())
        if runner is None:
            return []  # of distributed jobs, servers and trainers run startup programs when they open
        run = runner.step if role is not None else runner.run
        return _listed(run(feed or {}, _names(fetch_list)), fetch_list)

    def _runner(self, program, scope: Scope):
        """What runs the steps of a program; None if it has none."""
        if isinstance(program, CompiledProgram):
            if program._parallel:
                self._check_device("CompiledProgram.with_data_parallel")
                return program._runner(scope)
            program = program._alone()
        role = getattr(program, "_role", None)
        if role is not None:
            self._check_device("programs of distributed jobs")
            return None if role.is_startup or role.is_server else role.runner(self)
        if not program.ops:
            return None
        # A program that was edited since is compiled again.
        version = program._editor.program()
        prepared = self._prepared.get((program, scope))
        if prepared is None or prepared[0] is not version:
            prepared = (version, self._core.prepare(program, scope))
            self._prepared[program, scope] = prepared
        return prepared[1]

    def _check_device(self, what: str):
        if self._device != CPUPlace.device:
            raise UnimplementedError(f"fluid.Executor on '{self._device}' with {what}, which run on the CPU")

    def _trainer(self, role: _Role) -> _jobs.Trainer:
        if role not in self._trainers:
            self._trainers[role] = _jobs.Trainer(_jobs.trainer_files(role.job.path, role.index),
                                                 _jobs.Connection(**role.connection), trainer=role.index,
                                                 **role.options)
        return self._trainers[role]

    def close(self, **ending) -> dict:
        """Ends the trainers that this executor has run. ``ending``: options of :meth:`millrace.Trainer.finish`.

        :returns: what the last trainer gathered
        """
        gathered: dict = {}
        for trainer in self._trainers.values():
            gathered = trainer.finish(**ending)
        self._trainers.clear()
        self._prepared.clear()
        return gathered

    def train_from_dataset(self, program=None, dataset=None, scope: Scope | None = None, thread: int = 0,
                           debug: bool = False, fetch_list=None, fetch_info=None, print_period: int = 100,
                           fetch_handler=None):
        """Runs a step for every batch of a data set, once through its files. Every ``print_period`` batches the
        fetches are printed, after the texts of ``fetch_info``.

        :param thread: Hogwild threads that run steps with the same variables; 0: as many as ``set_thread`` of the
            data set says. Programs on several devices and trainers have none: the number of ``set_thread`` then only
            counts for readers.
        :returns: a :class:`millrace.Epoch`
        """
        return _run_from_dataset(lambda *epoch: self._over(True, program, scope, *epoch), dataset, thread, debug,
                                 fetch_list, fetch_info, print_period, fetch_handler)

    def infer_from_dataset(self, program=None, dataset=None, scope: Scope | None = None, thread: int = 0,
                           debug: bool = False, fetch_list=None, fetch_info=None, print_period: int = 100,
                           fetch_handler=None):
        """The same for a program that does not train; one that updates parameters is refused."""
        return _run_from_dataset(lambda *epoch: self._over(False, program, scope, *epoch), dataset, thread, debug,
                                 fetch_list, fetch_info, print_period, fetch_handler)

    def _over(self, trains: bool, program, scope, dataset, names, on_print, print_period, threads, stated):
        runner = self._runner(program or default_main_program(), scope or global_scope())
        if runner is None:
            raise InvalidArgumentError("train_from_dataset, infer_from_dataset: this program has no steps")
        if not trains and not hasattr(runner, "infer_from_dataset"):
            raise UnimplementedError("fluid.Executor.infer_from_dataset of a trainer of a distributed job")
        run = runner.train_from_dataset if trains else runner.infer_from_dataset
        if not stated and threads > 1 and not isinstance(runner, _PreparedProgram):
            warnings.warn("set_thread() sets the threads that read files; one thread runs the steps of this program "
                          "(thread=1 says so)", stacklevel=3)
            threads = 1
        return run(dataset, names, on_print=on_print, print_period=print_period, threads=threads)


def _listed(results: dict, fetch_list) -> list:
    return [results[name] for name in _names(fetch_list)] if fetch_list else list(results.values())


class ParallelExecutor:
    """Runs a program on several CPU devices, as many as the variable CPU_NUM says."""

    def __init__(self, use_cuda: bool, loss_name: str | None = None, main_program: Program | None = None,
                 share_vars_from: ParallelExecutor | None = None, exec_strategy=None, build_strategy=None,
                 num_trainers: int = 1, trainer_id: int = 0, scope: Scope | None = None):
        if use_cuda:
            raise UnimplementedError("fluid.ParallelExecutor with use_cuda")
        if num_trainers != 1 or trainer_id != 0:
            raise UnimplementedError("fluid.ParallelExecutor with several trainers; start them with launch")
        options = {"devices": cpu_num(), "loss_name": loss_name or "", "exec_strategy": exec_strategy,
                   "build_strategy": build_strategy}
        self._core = parallel_executor(main_program or default_main_program(), scope or global_scope(),
                                        None if share_vars_from is None else share_vars_from._core, options)

    def run(self, fetch_list, feed=None, feed_dict=None, return_numpy: bool = True) -> list:
        """``feed_dict`` is another name of ``feed``; ``return_numpy`` is without effect."""
        if feed and feed_dict:
            raise InvalidArgumentError("fluid.ParallelExecutor.run got feed and feed_dict; expected one of them")
        return _listed(self._core.run(feed or feed_dict or {}, _names(fetch_list)), fetch_list)

    @property
    def device_count(self) -> int:
        return self._core.device_count

    def drop_local_exe_scopes(self):
        self._core.drop_local_exe_scopes()


class _JobFolder:
    """A temporary folder for a job. It lives as long as a program that needs it."""

    def __init__(self):
        parent = tempfile.mkdtemp(prefix="millrace_job_")
        self.path = os.path.join(parent, "job")
        weakref.finalize(self, shutil.rmtree, parent, ignore_errors=True)


class _Role:
    """What a program of a distributed job runs as."""

    def __init__(self, job, is_server, index, is_startup, connection, options):
        self.job = job
        self.is_server = is_server
        self.index = index
        self.is_startup = is_startup
        self.connection = connection
        self.options = options

    #: how a job of this kind is saved
    saves = "exe.close(params=FOLDER) saves it when training ends"

    def of(self, program: Program) -> Program:
        program._role = self
        return program

    def serve(self):
        _jobs.ParameterServer(_jobs.server_files(self.job.path, self.index), _jobs.Connection(**self.connection),
                              **self.options).serve()

    def runner(self, executor: Executor) -> _jobs.Trainer:
        return executor._trainer(self)


class DistributeTranspiler:
    """Distributes a training program. ``exe.run`` knows what its programs run as.

    Each process of a job calls ``transpile`` with the same arguments but for ``trainer_id``.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None, connection: dict | None = None,
                 options: dict | None = None):
        """
        :param connection: options of :class:`millrace.Connection` for servers and trainers of this process
        :param options: options of :class:`millrace.ParameterServer` or :class:`millrace.Trainer`
        """
        self._config = config or DistributeTranspilerConfig()
        self._connection = connection or {}
        self._options = options or {}
        self._plan = None

    def transpile(self, trainer_id: int, program: Program | None = None, pservers: str = "127.0.0.1:6174",
                  trainers: int | str = 1, sync_mode: bool = True, startup_program: Program | None = None,
                  current_endpoint: str = "127.0.0.1:6174"):
        if sync_mode and not self._config.sync_mode:
            raise InvalidArgumentError("transpile() got sync_mode True, and the config has sync_mode False")
        main = program or default_main_program()
        startup = startup_program or default_startup_program()
        # An argument of False alone means an asynchronous job, as in most scripts.
        config = DistributeTranspilerConfig(**{name: getattr(self._config, name) for name in names_of(self._config)})
        config.sync_mode = sync_mode
        arguments = {"trainer_id": trainer_id, "pservers": pservers, "trainers": trainers, "sync_mode": sync_mode,
                     "current_endpoint": current_endpoint}
        plan = _DistributeTranspiler(config)
        plan.transpile(main, startup, **arguments)
        self._plan, self._trainer, self._roles, self._startup = plan, trainer_id, {}, startup
        if plan.pserver_endpoints:
            self._job = _JobFolder()
            fields = {name: getattr(config, name) for name in names_of(config)}
            del arguments["trainer_id"], arguments["current_endpoint"]
            _write_job(main, startup, self._job.path, **{**fields, **arguments, "trainers": int(trainers)})

    def _need_plan(self):
        if self._plan is None:
            raise InvalidArgumentError("call transpile() first")
        return self._plan

    def _role(self, is_server: bool, index: int, is_startup: bool) -> _Role:
        key = (is_server, index, is_startup)
        if key not in self._roles:
            self._roles[key] = _Role(self._job, is_server, index, is_startup, self._connection, self._options)
        return self._roles[key]

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        program = self._need_plan().get_trainer_program(wait_port)
        return self._role(False, self._trainer, False).of(program) if self._plan.pserver_endpoints else program

    def get_trainer_startup_program(self) -> Program:
        """Runs when the trainer's first step runs; ``exe.run`` of it does nothing."""
        program = self._need_plan().get_trainer_startup_program()
        return self._role(False, self._trainer, True).of(program) if self._plan.pserver_endpoints else program

    def _server(self, endpoint: str) -> int:
        endpoints = self._need_plan().pserver_endpoints
        if endpoint not in endpoints:
            raise InvalidArgumentError(f"no server at '{endpoint}': expected one of {', '.join(endpoints)}")
        return endpoints.index(endpoint)

    def get_pserver_program(self, endpoint: str) -> Program:
        index = self._server(endpoint)
        return self._role(True, index, False).of(self._plan.get_pserver_program(endpoint))

    def get_startup_program(self, endpoint: str, pserver_program: Program | None = None,
                            startup_program: Program | None = None) -> Program:
        """Runs when the server's program runs; ``exe.run`` of it does nothing. The programs may only be those of
        this endpoint and of :meth:`transpile`."""
        index = self._server(endpoint)
        of = getattr(pserver_program, "_role", None)
        if pserver_program is not None and of is not self._role(True, index, False):
            raise InvalidArgumentError(f"pserver_program is not what get_pserver_program('{endpoint}') returned")
        if startup_program is not None and startup_program is not self._startup:
            raise InvalidArgumentError("startup_program is not the one that transpile() got")
        return self._role(True, index, True).of(self._plan.get_startup_program(endpoint))

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        return self.get_pserver_program(endpoint), self.get_startup_program(endpoint)


class io:
    """``fluid.io``: the executor only says that values are those of ``global_scope()``."""

    @staticmethod
    def save_persistables(executor, dirname, main_program=None, filename=None):
        program = main_program or default_main_program()
        if getattr(program, "_role", None) is not None:
            raise UnimplementedError("fluid.io.save_persistables of a running distributed job",
                                     hint=program._role.saves)
        return _io.save_persistables(program, global_scope(), dirname, filename=filename or "", replace=True)

    @staticmethod
    def load_persistables(executor, dirname, main_program=None, filename=None):
        _io.load_persistables(main_program or default_main_program(), global_scope(), dirname, filename or "")

    @staticmethod
    def save_params(executor, dirname, main_program=None, filename=None):
        """Parameters alone: what newer programs say are parameters."""
        program = main_program or default_main_program()
        names = [name for name, var in program.vars.items() if var.is_parameter]
        if not names:
            raise UnimplementedError("fluid.io.save_params of a program that does not say which vars are parameters",
                                     hint="save_persistables saves them, too")
        return _io.save_vars(program, global_scope(), names, dirname, filename=filename or "", replace=True)

    @staticmethod
    def save_inference_model(dirname, feeded_var_names, target_vars, executor, main_program=None, model_filename=None,
                             params_filename=None, export_for_deployment=True, program_only=False):
        _expect("fluid.io.save_inference_model", export_for_deployment=(export_for_deployment, True))
        _io.save_inference_model(main_program or default_main_program(), global_scope(), dirname,
                                 feeded_var_names, _names(target_vars), model_filename=model_filename or "__model__",
                                 params_filename=params_filename or "", program_only=program_only, replace=True)
        return _names(target_vars)

    @staticmethod
    def load_inference_model(dirname, executor, model_filename=None, params_filename=None):
        """:returns: program, names of feeds, names of fetches"""
        model = _io.load_inference_model(dirname, global_scope(), model_filename or "", params_filename or "")
        return [model.program, model.feeds, model.fetches]


class optimizer:
    """``fluid.optimizer``: ``minimize`` changes the default programs."""

    class _Optimizer:
        _method = None

        def __init__(self, learning_rate=0.001, regularization=None, grad_clip=None, name=None, **fields):
            from . import optimizer as methods

            self._options = {"learning_rate": learning_rate, "method": getattr(methods, self._method)(**fields)}
            for key, value in {"regularization": regularization, "clip": grad_clip, "name": name}.items():
                if value is not None:
                    self._options[key] = value

        def minimize(self, loss, startup_program=None, parameter_list=None, no_grad_set=None,
                     main_program: Program | None = None):
            """:returns: names of parameters and gradients"""
            main = main_program or default_main_program()
            startup = startup_program or default_startup_program()
            result = _minimize(main, startup, loss if isinstance(loss, str) else loss.name,
                               parameters=_names(parameter_list), no_grad=set(_names(no_grad_set)), **self._options)
            main._editor, startup._editor = result.main._editor, result.startup._editor
            return result.param_grads


def _add_optimizers():
    for method, aliases in {"SGD": ["SGDOptimizer"], "Momentum": ["MomentumOptimizer"],
                            "LarsMomentum": ["LarsMomentumOptimizer"], "Adagrad": ["AdagradOptimizer"],
                            "DecayedAdagrad": ["DecayedAdagradOptimizer"], "Adadelta": ["AdadeltaOptimizer"],
                            "RMSProp": ["RMSPropOptimizer"], "Adam": ["AdamOptimizer"], "Adamax": ["AdamaxOptimizer"],
                            "Lamb": ["LambOptimizer"], "Ftrl": ["FtrlOptimizer"], "Dpsgd": ["DpsgdOptimizer"]}.items():
        made = type(method, (optimizer._Optimizer,), {"_method": method, "__doc__": f"millrace.optimizer.{method}"})
        for name in [method, *aliases]:
            setattr(optimizer, name, made)


_add_optimizers()
