"""The fleet objects of ``paddle.fluid.incubate.fleet`` for jobs whose servers run the optimizer; see millrace.fluid."""

from __future__ import annotations

import os

from . import jobs as _jobs
from ._errors import InvalidArgumentError, UnimplementedError
from ._options import fill, names_of
from .program import Program
from .training import minimize_options
from .transpiler import DistributeTranspilerConfig


class Role:
    """Roles of processes."""

    WORKER = 1
    SERVER = 2


class UserDefinedRoleMaker:
    """A role from arguments."""

    def __init__(self, current_id: int = 0, role: int = Role.WORKER, worker_num: int = 0, server_endpoints=None):
        if role not in (Role.WORKER, Role.SERVER):
            raise InvalidArgumentError(f"role: expected Role.WORKER or Role.SERVER, found {role}")
        self._arguments = {"is_server": role == Role.SERVER, "id": current_id, "worker_num": worker_num,
                           "server_endpoints": list(server_endpoints or [])}

    def _set(self, core: _jobs.Fleet):
        core.init(**self._arguments)


class PaddleCloudRoleMaker:
    """A role from the environment: TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST, ... ``launch`` sets them."""

    def _set(self, core: _jobs.Fleet):
        core.init()


class MPISymetricRoleMaker:
    """A role by the rank of mpirun: even ranks are servers, odd ranks workers."""

    def __init__(self, host: str = ""):
        self._host = host

    def _set(self, core: _jobs.Fleet):
        core.init_from_mpi(self._host)


class DistributedStrategy:
    """What :class:`StrategyFactory` makes."""

    def __init__(self, core):
        self._core = core

    def get_program_config(self):
        return self._core.config

    def set_program_config(self, config):
        """:param config: a DistributeTranspilerConfig, or a dict of its fields"""
        fields = config if isinstance(config, dict) else {name: getattr(config, name) for name in names_of(config)}
        fill(self._core.config, fields)

    def get_trainer_runtime_config(self) -> dict:
        return dict(self._core.communicator)

    def set_trainer_runtime_config(self, config: dict):
        """:param config: settings of the communicator: ``communicator_send_queue_size``, ..."""
        self._core.communicator = {name: str(value) for name, value in config.items()}

    def get_server_runtime_config(self) -> dict:
        return {name: getattr(self._core.config, name) for name in _SERVER_FIELDS}

    def set_server_runtime_config(self, config: dict):
        """:param config: ``rpc_send_thread_num``, ``rpc_get_thread_num``, ``rpc_prefetch_thread_num``"""
        for name in set(config) - set(_SERVER_FIELDS):
            raise InvalidArgumentError(f"server_runtime_config: expected {', '.join(_SERVER_FIELDS)}, found {name}")
        fill(self._core.config, config)

    def __getattr__(self, name: str):
        if name.startswith(("get_", "set_")):
            raise UnimplementedError(f"fluid.DistributedStrategy.{name}")
        raise AttributeError(name)


_SERVER_FIELDS = ("rpc_send_thread_num", "rpc_get_thread_num", "rpc_prefetch_thread_num")


class StrategyFactory:
    """Strategies by name."""

    @staticmethod
    def create_sync_strategy() -> DistributedStrategy:
        return DistributedStrategy(_jobs.TranspilerStrategy.sync())

    @staticmethod
    def create_async_strategy() -> DistributedStrategy:
        return DistributedStrategy(_jobs.TranspilerStrategy.async_())

    @staticmethod
    def create_half_async_strategy() -> DistributedStrategy:
        return DistributedStrategy(_jobs.TranspilerStrategy.half_async())

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> DistributedStrategy:
        return DistributedStrategy(_jobs.TranspilerStrategy.geo(update_frequency))


class _FleetRole:
    """What a program of a fleet object runs as; ``fluid.Executor`` reads it."""

    saves = "fleet.save_persistables() saves it"

    def __init__(self, core: _jobs.Fleet, is_server: bool, is_startup: bool):
        self.is_server = is_server
        self.is_startup = is_startup
        self._core = core

    def serve(self):
        self._core.run_server()

    def runner(self, executor) -> _jobs.Fleet:
        return self._core


class _DistributedOptimizer:
    def __init__(self, fleet: FleetTranspiler, inner):
        self._fleet = fleet
        self._inner = inner

    def minimize(self, loss, startup_program: Program | None = None, parameter_list=None, no_grad_set=None):
        """Trains and distributes the default program; ``fleet.main_program`` and the default programs are then those of
        this process."""
        from . import fluid

        if isinstance(loss, (list, tuple)):
            raise UnimplementedError("fleet: minimize of several losses, in a job whose servers run the optimizer")
        options = dict(self._inner._options)
        options.update({"parameters": fluid._names(parameter_list), "no_grad": set(fluid._names(no_grad_set))})
        self._fleet._minimize(fluid.default_main_program(), startup_program or fluid.default_startup_program(),
                              loss if isinstance(loss, str) else loss.name, options)

    def __getattr__(self, name: str):
        if name in ("backward", "apply_gradients"):
            raise UnimplementedError(f"fleet: {name}() of a distributed optimizer; minimize() does both")
        raise AttributeError(name)


class FleetTranspiler:
    """A process of a job, with the calls of the original's object ``fleet``::

        fleet = fluid.FleetTranspiler()
        fleet.init(fluid.PaddleCloudRoleMaker())
        strategy = fluid.StrategyFactory.create_sync_strategy()
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
        if fleet.is_server():
            fleet.init_server()
            fleet.run_server()
        else:
            fleet.init_worker()
            exe.run(fleet.main_program, feed=..., fetch_list=[loss])
            fleet.stop_worker()

    Startup programs run in ``init_server`` and ``init_worker``: ``exe.run`` of one does nothing.
    """

    def __init__(self, connection: dict | None = None, server: dict | None = None, worker: dict | None = None):
        """
        :param connection: options of :class:`millrace.Connection`, or one
        :param server: options of :meth:`millrace.Fleet.init_server`
        :param worker: options of :meth:`millrace.Fleet.init_worker`
        """
        connected = connection if isinstance(connection, _jobs.Connection) else _jobs.Connection(**connection or {})
        self._core = _jobs.Fleet(connected)
        self._server = server or {}
        self._worker = worker or {}
        self.main_program: Program | None = None
        self.startup_program: Program | None = None

    def init(self, role_maker=None):
        """:param role_maker: None: MPISymetricRoleMaker()"""
        (role_maker or MPISymetricRoleMaker())._set(self._core)

    @property
    def role(self):
        """The role of this process; an error before ``init``."""
        return self._core.role

    def is_worker(self) -> bool:
        return not self.role.is_server

    def is_server(self) -> bool:
        return self.role.is_server

    def is_first_worker(self) -> bool:
        return self.role.is_first_worker()

    def worker_index(self) -> int:
        return self._index(False)

    def server_index(self) -> int:
        return self._index(True)

    def _index(self, is_server: bool) -> int:
        role = self.role
        if role.is_server != is_server:
            raise InvalidArgumentError(f"this process is a {'server' if role.is_server else 'worker'}")
        return role.id

    def worker_num(self) -> int:
        return self.role.worker_num

    def server_num(self) -> int:
        return len(self.role.server_endpoints)

    def worker_endpoints(self, to_string: bool = False):
        return self._list(self.role.worker_endpoints, to_string)

    def server_endpoints(self, to_string: bool = False):
        return self._list(self.role.server_endpoints, to_string)

    @staticmethod
    def _list(endpoints, to_string: bool):
        return ",".join(endpoints) if to_string else list(endpoints)

    def split_files(self, files) -> list[str]:
        """This worker's share."""
        if not isinstance(files, list):
            raise TypeError("split_files: expected a list of files")
        return self._core.split_files(files)

    def barrier_worker(self):
        self._core.barrier_worker()

    def distributed_optimizer(self, optimizer, strategy=None) -> _DistributedOptimizer:
        """
        :param optimizer: of ``fluid.optimizer``
        :param strategy: of StrategyFactory, or a DistributeTranspilerConfig; None: asynchronous
        """
        from . import fluid

        if not isinstance(optimizer, fluid.optimizer._Optimizer):
            raise InvalidArgumentError("distributed_optimizer: expected an optimizer of fluid.optimizer")
        self._strategy = self._strategy_of(strategy)
        self.role  # an error before init()
        return _DistributedOptimizer(self, optimizer)

    def _strategy_of(self, strategy):
        if strategy is None:
            return _jobs.TranspilerStrategy.async_()
        if isinstance(strategy, DistributedStrategy):
            return strategy._core
        if isinstance(strategy, DistributeTranspilerConfig):
            return _jobs.TranspilerStrategy.from_config(strategy)
        raise TypeError("strategy: expected one of StrategyFactory or a DistributeTranspilerConfig, found "
                        f"{type(strategy).__name__}")

    def _minimize(self, main: Program, startup: Program, loss: str, options: dict):
        self._core.distributed_optimizer(minimize_options(**options), self._strategy)
        self._core.minimize(main, startup, loss)
        is_server = self.is_server()
        made = (self._core.main_program, self._core.startup_program)
        for program, own, is_startup in zip((main, startup), made, (False, True)):
            own._role = program._role = _FleetRole(self._core, is_server, is_startup)
            program._editor = own._editor
        self.main_program, self.startup_program = made

    def init_server(self, model_dir: str | None = None):
        """Runs the startup program of this server. ``model_dir``: what ``save_persistables`` has written."""
        self._core.init_server(os.fspath(model_dir or ""), **self._server)

    def run_server(self):
        """Serves until all workers have stopped."""
        self._core.run_server()

    def init_worker(self):
        """Waits for the servers, and runs the startup program of this worker."""
        self._core.init_worker(**self._worker)

    def stop_worker(self):
        """Sends what waits, and tells the servers that this worker is done."""
        self._core.stop_worker()

    def load_model(self, dirname):
        """All workers load what ``save_persistables`` has written; the first one sends it to the servers."""
        self._core.load_model(*self._place(dirname))

    def shrink(self):
        """Ends a day of the typed tables."""
        self._core.shrink()

    def save_persistables(self, executor, dirname, main_program: Program | None = None):
        """The first worker writes all variables, one file each; the others return immediately."""
        self._check_save("save_persistables", executor, main_program)
        self._core.save_persistables(*self._place(dirname), replace=True)

    def save_inference_model(self, executor, dirname, feeded_var_names, target_vars, main_program: Program | None = None,
                             export_for_deployment: bool = True):
        """The first worker writes the part of the program that computes the targets; it runs without servers."""
        from . import fluid

        self._check_save("save_inference_model", executor, main_program)
        self._core.save_inference_model(*self._place(dirname), list(feeded_var_names), fluid._names(target_vars),
                                        replace=True)

    def _check_save(self, call: str, executor, program):
        from . import fluid

        if not isinstance(executor, fluid.Executor):
            raise TypeError(f"fleet.{call}(): expected an Executor, found {type(executor).__name__}")
        if isinstance(program, fluid.CompiledProgram):
            raise TypeError(f"fleet.{call}(): expected a Program, found a CompiledProgram")
        if program is not None and getattr(program, "_role", None) is not getattr(self.main_program, "_role", None):
            raise InvalidArgumentError(f"fleet.{call}(): expected the program of this job, found another one")

    @staticmethod
    def _place(dirname):
        return os.path.split(os.path.abspath(os.fspath(dirname)))


class DistributedTranspiler(FleetTranspiler):
    """The same with the strategies of the oldest class: a DistributeTranspilerConfig."""

    def _strategy_of(self, strategy):
        config = strategy or DistributeTranspilerConfig()
        if not isinstance(config, DistributeTranspilerConfig):
            raise TypeError(f"config: expected a DistributeTranspilerConfig, found {type(config).__name__}")
        if not config.sync_mode:
            config.runtime_split_send_recv = True
        return _jobs.TranspilerStrategy.from_config(config)
