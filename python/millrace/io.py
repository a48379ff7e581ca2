"""Variables and inference models in the files of the original."""

from __future__ import annotations

import os
from typing import Iterable, NamedTuple

from . import _core
from ._options import fill, handle_of, listed, scope_of
from .execution import Scope
from .program import Program


class InferenceModel(NamedTuple):
    """What :func:`load_inference_model` returns."""

    program: Program
    feeds: list[str]
    fetches: list[str]


def save_persistables(program: Program, scope: Scope, folder: str | os.PathLike, **options) -> int:
    """Writes the persistable vars to a folder and returns their number.

    Options: ``filename`` (one combined file), ``replace``, ``sync``, ``manifest``.
    """
    return _core.save_persistables(handle_of(program), scope_of(scope), os.fspath(folder),
                                   fill(_core.SaveVarsOptions(), options))


def save_vars(program: Program, scope: Scope, names: Iterable[str], folder: str | os.PathLike, **options) -> int:
    """The same for the vars with the given names."""
    return _core.save_vars(handle_of(program), scope_of(scope), listed(names, "names"), os.fspath(folder),
                           fill(_core.SaveVarsOptions(), options))


def load_persistables(program: Program, scope: Scope, folder: str | os.PathLike, filename: str = ""):
    """Reads the persistable vars. After an error the scope is unchanged.

    :param filename: combined file in the folder; empty: one file per var
    """
    _core.load_persistables(handle_of(program), scope_of(scope), os.fspath(folder), filename)


def load_vars(program: Program, scope: Scope, names: Iterable[str], folder: str | os.PathLike, filename: str = ""):
    """The same for the vars with the given names."""
    _core.load_vars(handle_of(program), scope_of(scope), listed(names, "names"), os.fspath(folder), filename)


def persistables_to_memory(program: Program, scope: Scope) -> bytes:
    """The bytes of the combined file that :func:`save_persistables` would write."""
    return _core.persistables_to_memory(handle_of(program), scope_of(scope))


def persistables_from_memory(program: Program, scope: Scope, data: bytes):
    """Reads such bytes into the scope."""
    _core.persistables_from_memory(handle_of(program), scope_of(scope), bytes(data))


def save_inference_model(program: Program, scope: Scope, folder: str | os.PathLike, feeds: Iterable[str],
                         fetches: Iterable[str], **options):
    """Writes the part of the program that computes the fetches from the feeds, with its parameters.

    Options: ``model_filename``, ``params_filename``, ``program_only``, ``replace``.
    """
    _core.save_inference_model(handle_of(program), scope_of(scope), os.fspath(folder), listed(feeds, "feeds"),
                               listed(fetches, "fetches"), fill(_core.SaveModelOptions(), options))


def load_inference_model(folder: str | os.PathLike, scope: Scope, model_filename: str = "",
                         params_filename: str = "") -> InferenceModel:
    """Reads a model folder; its parameters go into the scope."""
    handle, feeds, fetches = _core.load_inference_model(os.fspath(folder), scope_of(scope), model_filename,
                                                        params_filename)
    return InferenceModel(Program._of(handle, os.fspath(folder)), feeds, fetches)
