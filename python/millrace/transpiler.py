"""Distributing a training program over trainers and parameter servers."""

from __future__ import annotations

import os
from typing import NamedTuple

from . import _core
from ._options import fill, handle_of, names_of, option_class
from .program import Program

DistributeTranspilerConfig = option_class(_core.DistributeTranspilerConfig, "Settings of DistributeTranspiler, as in the original.")


class DistributeTranspiler:
    """Distributes one training program; the calls of the original's class of that name."""

    def __init__(self, config: DistributeTranspilerConfig | None = None, transpiler: str = "distribute"):
        """:param transpiler: distribute, geo or federated"""
        self._core = _core.DistributeTranspiler(config or DistributeTranspilerConfig(), transpiler)

    def transpile(self, main: Program, startup: Program, **arguments):
        """Plans the distribution; the programs are verified and not changed.

        Arguments: ``trainer_id``, ``pservers`` ("host:port,host:port"), ``trainers`` (a number, or endpoints in modes
        without servers), ``sync_mode``, ``current_endpoint``, ``random_seed``, ``parameter_order``, ``device_count``.
        """
        if isinstance(arguments.get("trainers"), int):
            arguments["trainers"] = str(arguments["trainers"])
        self._core.transpile(handle_of(main, "main"), handle_of(startup, "startup"),
                             fill(_core.TranspileArguments(), arguments))

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """Main program of the trainer. With ``config.wait_port`` it waits until the servers listen."""
        return Program._of(self._core.get_trainer_program(wait_port), "trainer")

    def get_trainer_startup_program(self) -> Program:
        return Program._of(self._core.get_trainer_startup_program(), "trainer startup")

    def get_pserver_program(self, endpoint: str) -> Program:
        return self.get_pserver_programs(endpoint)[0]

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """Main and startup program of the server at an endpoint."""
        main, startup = self._core.get_pserver_programs(endpoint)
        return Program._of(main, endpoint), Program._of(startup, endpoint + " startup")

    def get_startup_program(self, endpoint: str) -> Program:
        return self.get_pserver_programs(endpoint)[1]

    @property
    def pserver_endpoints(self) -> list[str]:
        return self._core.pserver_endpoints()

    @property
    def vars_overview(self) -> list[dict]:
        """Which vars, or slices of vars, are on which server."""
        return self._core.vars_overview()

    def overview(self) -> str:
        """The same as text, one line per entry."""
        return self._core.overview_text()

    def slices_json(self) -> str:
        """slices.json of the plan."""
        return self._core.slices_json()


class WrittenJob(NamedTuple):
    """What :func:`transpile` returns."""

    folder: str
    trainers: int
    servers: int
    endpoints: list[str]
    remarks: list[str]


def transpile(main: Program, startup: Program, folder: str | os.PathLike, *, transpiler: str = "distribute",
              sparse_tables: str = "", replace: bool = False, **settings) -> WrittenJob:
    """Distributes a training program and writes the folder of a job: ``trainer_<i>``, ``pserver_<i>``, slices.json.

    :param transpiler: distribute, geo or federated
    :param sparse_tables: JSON with settings of embeddings that become typed tables; empty: none
    :param replace: replace the whole folder if it exists
    :param settings: fields of DistributeTranspilerConfig and arguments of :meth:`DistributeTranspiler.transpile`;
        ``sync_mode`` is both
    """
    options = fill(_core.WriteJobOptions(), {"transpiler": transpiler, "sparse_tables": sparse_tables,
                                             "replace": replace})
    if isinstance(settings.get("trainers"), int):
        settings["trainers"] = str(settings["trainers"])
    config, arguments = _core.DistributeTranspilerConfig(), _core.TranspileArguments()
    ofs = [(part, set(names_of(part))) for part in (config, arguments)]
    for name, value in settings.items():
        if not any(name in names for _, names in ofs):
            raise TypeError(f"transpile() has no setting '{name}'; it has {', '.join(sorted(ofs[0][1] | ofs[1][1]))}")
        for part, names in ofs:
            if name in names:
                setattr(part, name, value)
    options.config, options.arguments = config, arguments
    written = _core.write_job(handle_of(main, "main"), handle_of(startup, "startup"), os.fspath(folder), options)
    return WrittenJob(os.fspath(folder), **written)
