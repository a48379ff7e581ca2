"""Jobs with parameter servers: connections, servers and trainers inside this process, and what goes with them."""

from __future__ import annotations

import operator
import os
import threading
from typing import Callable, Iterable, Mapping

from . import _core
from ._errors import InvalidArgumentError
from ._options import arrays_by_name, connection_of, fill, handle_of, listed, option_class, scope_of
from .datasets import InfersFromDatasets, TrainsFromDatasets
from .execution import Rows, Scope
from .program import Program

RoleFiles = option_class(_core.RoleFiles, "Files of one trainer or server: program, startup, slices, params, load_program.")


def trainer_files(folder: str | os.PathLike, trainer: int) -> RoleFiles:
    """Files of a trainer in the folder of a job."""
    return _core.trainer_files(os.fspath(folder), trainer)


def server_files(folder: str | os.PathLike, server: int) -> RoleFiles:
    """Files of a server in the folder of a job."""
    return _core.server_files(os.fspath(folder), server)


class Connection:
    """How the processes of a job connect to each other.

    Options: ``job``, ``kind`` ("auto", "grpc", "tcp"), ``tls`` (a dict with authority, certificate, key,
    server_name), ``job_key_file``, ``insecure_listen``, ``reconnect_timeout``, ``max_message_bytes``, ``etcd``,
    ``etcd_lease``, ``endpoint``, ``advertise``, ``log`` (receives lines). Times are seconds or timedeltas.
    """

    def __init__(self, **options):
        if isinstance(options.get("kind"), str):
            options["kind"] = _core.WireKind[options["kind"]]
        if isinstance(options.get("tls"), Mapping):
            options["tls"] = fill(_core.TlsFiles(), dict(options["tls"]))
        self._core = _core.Connection.open(fill(_core.ConnectionOptions(), _seconds(options)))

    @classmethod
    def in_process(cls, job: str = "") -> Connection:
        """For servers and trainers of this process that use the same object. Endpoints are names."""
        connection = cls.__new__(cls)
        connection._core = _core.Connection.in_process(job)
        return connection

    @property
    def job(self) -> str:
        return self._core.job

    def close(self):
        """In one process: ends calls that wait for a server that was never opened."""
        self._core.close()


_TIMES = {"reconnect_timeout", "etcd_lease", "start_timeout", "silence_timeout", "report_interval",
          "snapshot_interval", "deadline", "heartbeat", "wait_for_servers", "join_deadline", "wait", "join"}


def _seconds(options: dict) -> dict:
    import datetime

    return {name: datetime.timedelta(seconds=value) if name in _TIMES and isinstance(value, (int, float)) else value
            for name, value in options.items()}


class Ranks:
    """The processes that train a program together and exchange values by its collective ops: ``ranks=`` of
    :class:`Executor` and :class:`ParallelExecutor`. Returns when all have connected.

    Options, each by default as in the environment that ``launch``, mpirun, Slurm or torchrun set: ``rank``,
    ``endpoints`` (of all ranks), ``engine`` ("auto", "shm", "gloo", "mpi", "nccl"), ``rendezvous`` (new folder where
    ranks meet), ``job_key_file``; ``wait`` and ``join`` (seconds: longest wait for another rank, and until all have
    connected). An error of a run breaks the group: later runs of all ranks end with an error.
    """

    def __init__(self, **options):
        self._core = _core.Ranks.open(fill(_core.RankOptions(), _seconds(options)))

    @property
    def rank(self) -> int:
        return self._core.rank

    @property
    def size(self) -> int:
        return self._core.size

    def barrier(self):
        """Returns when all ranks have called it."""
        self._core.barrier()


class ParameterServer:
    """One server of a job, in this process.

    Options: ``endpoint``, ``threads``, ``seed``, ``start_timeout``, ``silence_timeout``, ``report_interval``,
    ``dc_lambda``, ``elastic``, ``files_root``, ``snapshot_root``, ``snapshot_every``, ``snapshot_interval``,
    ``snapshot_durable``, ``log``. Times are seconds or timedeltas.
    """

    def __init__(self, files: RoleFiles, connection: Connection, **options):
        self._core = _core.ParameterServer.open(files, connection_of(connection),
                                                fill(_core.ServerOptions(), _seconds(options)))
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def on_ready(self, callback: Callable[[str], None]):
        """Sets a function that receives the endpoint as soon as the server listens."""
        self._core.on_ready(callback)

    def serve(self):
        """Serves until all trainers have finished, or :meth:`stop`."""
        self._core.serve()

    def start(self) -> ParameterServer:
        """Serves in a thread, once. :meth:`join` waits for its end."""
        if self._thread is not None:
            raise InvalidArgumentError("start: the server has been started before")

        def run():
            try:
                self._core.serve()
            except BaseException as error:  # raised again by join()
                self._error = error

        self._thread = threading.Thread(target=run, name="millrace server", daemon=True)
        self._thread.start()
        return self

    def join(self, timeout: float | None = None):
        """Waits for the end of a server that was started, and raises its error. TimeoutError after ``timeout``
        (seconds)."""
        if self._thread is None:
            raise InvalidArgumentError("join: the server has not been started")
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError("the server still serves")
        if self._error is not None:
            raise self._error

    def stop(self):
        """Ends serving after the current step. From any thread."""
        self._core.stop()


class Trainer(TrainsFromDatasets):
    """One trainer of a job.

    Options: ``trainer``, ``threads``, ``seed``, ``optimize``, ``files_root``, ``communicator``, ``cpu_num``,
    ``workers``, ``devices`` (a dict with devices, loss_name, exec_strategy, build_strategy, split), ``deadline``,
    ``heartbeat``, ``log``. Times are seconds or timedeltas.
    """

    def __init__(self, files: RoleFiles, connection: Connection, **options):
        if isinstance(options.get("devices"), Mapping):
            options["devices"] = fill(_core.TrainerDevices(), dict(options["devices"]))
        self._core = _core.Trainer.open(files, connection_of(connection), fill(_core.TrainerOptions(), _seconds(options)))

    @property
    def next_step(self) -> int:
        """Number of the next step."""
        return self._core.next_step()

    def step(self, feeds: Mapping[str, object], fetches: Iterable[str] = ()) -> dict:
        """Runs one step: computes, sends gradients, receives parameters."""
        return self._core.step(arrays_by_name(feeds), listed(fetches, "fetches"))

    def worker_step(self, worker: int, number: int, feeds: Mapping[str, object], fetches: Iterable[str] = ()) -> dict:
        """The same by one of several threads (option ``workers``)."""
        return self._core.worker_step(worker, number, arrays_by_name(feeds), listed(fetches, "fetches"))

    def worker_leaves(self):
        """A worker thread runs no more steps."""
        self._core.worker_leaves()

    @property
    def must_go_back(self) -> bool:
        """True after an error of a step that :meth:`go_back` can fix."""
        return self._core.must_go_back()

    def go_back(self):
        """Goes back to the step of the servers' snapshots."""
        self._core.go_back()

    @property
    def stats(self) -> dict:
        """Losses, steps, examples, seconds of parts of the steps."""
        return self._core.stats()

    def finish(self, **ending) -> dict:
        """Tells the servers that this trainer is done, and saves. Call it once.

        Options: ``gather`` (returns parameters and optimizer state), ``params``, ``save_programs``, ``model``,
        ``model_program``, ``model_feeds``, ``model_fetches``, ``replace``.
        """
        return self._core.finish(fill(_core.TrainerEnding(), ending))


class LiveModel(InfersFromDatasets):
    """Inference with the variables of running servers.

    Options: ``trainer``, ``threads``, ``optimize``, ``deadline``, ``heartbeat``, ``log``.
    """

    def __init__(self, files: RoleFiles, inputs: Iterable[str], outputs: Iterable[str], connection: Connection,
                 **options):
        self._core = _core.LiveModel.open(files, listed(inputs, "inputs"), listed(outputs, "outputs"),
                                          connection_of(connection),
                                          fill(_core.LiveModelOptions(), _seconds(options)))

    def run(self, feeds: Mapping[str, object]) -> dict:
        return self._core.run(arrays_by_name(feeds))

    def refresh(self):
        """Fetches the dense parameters again."""
        self._core.refresh()

    def close(self):
        """Leaves the job."""
        self._core.close()


class Communicator:
    """Sends gradients of a program that computes itself, and receives parameters, in the background.

    Options: ``trainer``, ``settings``, ``cpu_num``, ``deadline``, ``heartbeat``, ``log``.
    """

    def __init__(self, program: Program, connection: Connection, **options):
        self._core = _core.Communicator.open(handle_of(program), connection_of(connection),
                                             fill(_core.CommunicatorOptions(), _seconds(options)))

    @property
    def sent_vars(self) -> list[str]:
        return self._core.sent_vars()

    @property
    def received_vars(self) -> list[str]:
        return self._core.received_vars()

    @property
    def remarks(self) -> list[str]:
        """Settings that were changed or have no effect."""
        return self._core.remarks()

    def start(self):
        self._core.start()

    def stop(self):
        """Sends everything that waits, then ends the threads."""
        self._core.stop()

    @property
    def is_running(self) -> bool:
        return self._core.is_running()

    def send(self, var: str, value):
        """Copies a gradient: an array with the dims of the var, or Rows."""
        if isinstance(value, Rows):
            self._core.send_rows(var, [operator.index(row) for row in value.rows], value.height, value.values)
        else:
            self._core.send(var, value)

    def barrier(self):
        """Half-async: the end of the batch of one of ``cpu_num`` threads."""
        self._core.barrier()

    def leave(self):
        """A thread runs no more steps."""
        self._core.leave()

    def recv(self, scope: Scope):
        """Receives all parameters into the scope."""
        self._core.recv(scope_of(scope))

    def finish_step(self, scope: Scope):
        """Moves parameters that have arrived into the scope, without waiting."""
        self._core.finish_step(scope_of(scope))

    @property
    def counts(self) -> dict:
        """Messages sent, values in them, parameters received."""
        return self._core.counts()

    def close(self):
        """Leaves the job. Call it after :meth:`stop`."""
        self._core.close()


class ServerCheckpoint:
    """The variables of a job, whole, from the snapshots of its servers."""

    def __init__(self, root: str | os.PathLike, slices: str | os.PathLike, threads: int = 1):
        """:param slices: slices.json of the job that took the snapshots"""
        self._core = _core.ServerCheckpoint.open(os.fspath(root), os.fspath(slices), threads)

    @property
    def step(self) -> int:
        return self._core.step()

    @property
    def servers(self) -> int:
        return self._core.servers()

    def names(self) -> list[str]:
        return self._core.names()

    def __iter__(self):
        return iter(self.names())

    def __getitem__(self, name: str):
        return self._core.get(name)

    def reshard(self, to_slices: str | os.PathLike, output: str | os.PathLike, **options):
        """Writes the values for the servers of another job. Options: ``max_bytes``, ``replace``, ``sync``."""
        self._core.reshard(os.fspath(to_slices), os.fspath(output), fill(_core.ReshardOptions(), options))


class TranspilerStrategy:
    """How a job of the original's first fleet trains: its servers run optimizer blocks.

    The functions return an object with ``config``, a :class:`DistributeTranspilerConfig`, ``communicator``, settings of
    the communicator by name, and ``sparse_tables``, JSON of the embeddings that become typed tables; give it to :meth:`Fleet.distributed_optimizer`.
    """

    sync = staticmethod(_core.TranspilerStrategy.sync)  #: all workers wait for each other in every step
    async_ = staticmethod(_core.TranspilerStrategy.async_)  #: no worker waits
    half_async = staticmethod(_core.TranspilerStrategy.half_async)  #: each worker waits for its servers only
    geo = staticmethod(_core.TranspilerStrategy.geo)  #: workers exchange differences every update_frequency steps
    from_config = staticmethod(_core.TranspilerStrategy.from_config)

    @staticmethod
    def from_settings(**settings):
        """Of ``a_sync`` and ``a_sync_configs`` (k_steps)."""
        return _core.TranspilerStrategy.from_strategy(fill(_core.FleetStrategy(), settings))


class Fleet(TrainsFromDatasets):
    """A process of a job of the fleet API, with the calls of the original's fleet object."""

    def __init__(self, connection: Connection | None = None):
        self._core = _core.Fleet((connection or Connection())._core)

    def init(self, **role):
        """Sets the role; without arguments from the environment variables of PaddleCloud.

        Arguments: ``is_server``, ``id``, ``worker_num``, ``server_endpoints``, ``worker_endpoints``.
        """
        if role:
            self._core.init(fill(_core.FleetRole(), role))
        else:
            self._core.init_from_environment()

    def init_from_mpi(self, host: str = ""):
        """Sets the role by the ranks of mpirun: even ranks are servers, odd ranks workers. Call it once in a process.

        :param host: at which this process listens as a server; empty: 127.0.0.1 on one machine, else its name
        """
        self._core.init_from_mpi(host)

    @property
    def role(self):
        return self._core.role()

    @property
    def remarks(self) -> list[str]:
        """Settings of environment and strategy that are never read."""
        return self._core.remarks()

    def split_files(self, files: Iterable[str]) -> list[str]:
        """This worker's share of a list of files."""
        return self._core.split_files([os.fspath(file) for file in files])

    def distributed_optimizer(self, optimizer, strategy: TranspilerStrategy | None = None, **settings):
        """Sets how the job trains.

        :param optimizer: of :func:`millrace.minimize_options`
        :param strategy: of a job whose servers run optimizer blocks; there are no settings then
        :param settings: ``a_sync``, ``a_sync_configs``, ``trainer_desc_configs``, ``fs_client_param``, ``tables``,
            ``use_cvm``, ``adam_d2sum``, ``all_optimizers``, ``dense_gradients`` ("servers", or "all_reduce": a hybrid
            job, whose workers keep the dense parameters)
        """
        if strategy is not None and settings:
            raise TypeError("distributed_optimizer: expected a TranspilerStrategy or settings, found both")
        self._core.distributed_optimizer(optimizer, strategy or fill(_core.FleetStrategy(), settings))

    def downpour_optimizer(self, **settings):
        """Sets that the job is one of DownpourSGD, in place of :meth:`distributed_optimizer`.

        :param settings: ``sparse_configs``, ``dense_configs``, ``datanorm_configs``, ``data_norm_names``, ``use_cvm``,
            ``window``, ``early``, ``learning_rate``, ``fleet_desc`` (text), ``program_config_messages``
        """
        self._core.distributed_optimizer(fill(_core.DownpourStrategy(), settings))

    def minimize(self, main: Program, startup: Program, loss: str):
        """Builds the programs of this process."""
        self._core.minimize(handle_of(main, "main"), handle_of(startup, "startup"), loss)

    @property
    def main_program(self) -> Program | None:
        handle = self._core.main_program()
        return None if handle is None else Program._of(handle)

    @property
    def startup_program(self) -> Program | None:
        handle = self._core.startup_program()
        return None if handle is None else Program._of(handle)

    def description(self) -> tuple[str, str]:
        """The tables of this process, in text form, and JSON of what it sends and receives: what the files ps_desc.txt
        and runtime.json of ``transpile-program --fleet`` contain."""
        tables, runtime, _, _ = self._core.description()
        return tables, runtime

    def downpour_description(self) -> tuple[str, str]:
        """Of a DownpourSGD job: what fleet_desc.txt and opt_info.json of ``transpile-program --downpour`` contain."""
        _, _, fleet_desc, opt_info = self._core.description()
        if not opt_info:
            raise InvalidArgumentError("downpour_description: expected a job of downpour_optimizer()")
        return fleet_desc, opt_info

    def init_server(self, folder: str = "", tables: Iterable[str] = (), *, seed: int = 0, disk_path: str = "",
                    **service):
        """Creates the tables of this server. ``service``: options of :class:`ParameterServer`."""
        self._core.init_server(folder, listed(tables, "tables"),
                               fill(_core.FleetTableOptions(), {"seed": seed, "disk_path": disk_path}),
                               fill(_core.ServerOptions(), _seconds(service)))

    def run_server(self):
        """Serves until all workers have stopped or :meth:`stop_server`."""
        self._core.run_server()

    def stop_server(self):
        self._core.stop_server()

    def init_worker(self, **options):
        """Waits for the servers. Options: ``wait_for_servers``, ``deadline``, ``heartbeat``; ``folder`` (of
        :meth:`save_persistables`, to continue from) in hybrid jobs and those of the first fleet; in hybrid jobs also
        ``engine`` ("auto", "shm", "gloo"), ``rendezvous`` (new folder where workers meet), ``join_deadline``."""
        self._core.init_worker(fill(_core.FleetWorkerOptions(), _seconds(options)))

    def step(self, feeds: Mapping[str, object], fetches: Iterable[str] = ()) -> dict:
        return self._core.step(arrays_by_name(feeds), listed(fetches, "fetches"))

    def __getitem__(self, name: str):
        """A parameter of this worker, as last received."""
        return self._core.get(name)

    @property
    def first_step(self) -> int:
        """The step from which this worker trains: 0, unless synchronous servers loaded snapshots."""
        return self._core.first_step

    @property
    def next_step(self) -> int:
        """Number of the next step."""
        return self._core.next_step()

    @property
    def must_go_back(self) -> bool:
        """True after an error of a step, or of the end of training, that :meth:`go_back` can fix."""
        return self._core.must_go_back()

    def go_back(self):
        """Goes back to the step of the servers' snapshots, as all workers must; ``next_step`` then is that step::

            while fleet.next_step < steps:
                try:
                    fleet.step(batch(fleet.next_step))
                except millrace.DistributedError:
                    if not fleet.must_go_back:
                        raise
                    fleet.go_back()
        """
        self._core.go_back()

    def barrier_worker(self):
        self._core.barrier_worker()

    def wait_for_all(self):
        """Ends training: sends what waits, and receives the final parameters."""
        self._core.wait_for_all()

    def stop_worker(self):
        self._core.stop_worker()

    def save_persistables(self, root: str | os.PathLike, folder: str, *, replace: bool = False, mode: int = 0):
        self._core.save_persistables(self._folder(root, folder, replace, mode))

    def save_inference_model(self, root: str | os.PathLike, folder: str, feeds: Iterable[str],
                             fetches: Iterable[str], *, replace: bool = False, mode: int = 0):
        self._core.save_inference_model(self._folder(root, folder, replace, mode), listed(feeds, "feeds"),
                                        listed(fetches, "fetches"))

    def load_model(self, root: str | os.PathLike, folder: str, *, mode: int = 0):
        self._core.load_model(self._folder(root, folder, False, mode))

    def shrink(self):
        """Ends a day of all sparse tables."""
        self._core.shrink()

    @staticmethod
    def _folder(root, folder, replace, mode):
        return fill(_core.FleetFolder(), {"root": os.fspath(root), "folder": folder, "replace": replace,
                                          "mode": mode})
