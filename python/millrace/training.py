"""Gradients and optimizers for programs from files."""

from __future__ import annotations

import warnings as _warnings
from typing import Iterable, NamedTuple

from . import _core
from ._options import fill, handle_of, listed
from .program import Program


class Backward(NamedTuple):
    """What :func:`append_backward` returns."""

    main: Program  #: with gradient ops
    param_grads: list[tuple[str, str]]  #: parameters and the vars of their gradients


class Minimized(NamedTuple):
    """What :func:`minimize` returns."""

    main: Program  #: with gradient, clip, decay and update ops
    startup: Program  #: also initialises the optimizer's state
    param_grads: list[tuple[str, str]]  #: parameters that are trained, and their gradients
    learning_rate: str  #: var that holds the rate


def _warn(found):
    for warning in found:
        _warnings.warn(str(warning), stacklevel=3)


def append_backward(main: Program, loss: str, parameters: Iterable[str] = (),
                    no_grad: Iterable[str] = ()) -> Backward:
    """Appends the ops that compute the gradients of a loss.

    :param parameters: whose gradients are wanted; empty: of all
    :param no_grad: vars through which no gradient flows
    """
    handle, grads, found = _core.append_backward(handle_of(main, "main"), loss, listed(parameters, "parameters"),
                                                 set(listed(no_grad, "no_grad")))
    _warn(found)
    return Backward(Program._of(handle, main._name), grads)


def minimize(main: Program, startup: Program, loss: str, method=None, **options) -> Minimized:
    """Turns a forward program into a training program.

    :param method: an optimizer of :mod:`millrace.optimizer`; None: SGD

    Options: ``learning_rate`` (a number or a schedule), ``clip``, ``regularization``, ``parameters``, ``no_grad``,
    ``parameter_options``, ``error_clips``, ``name``.
    """
    settings = fill(_core.MinimizeOptions(), options)
    if method is not None:
        settings.method = method
    new_main, new_startup, grads, rate, found = _core.minimize(
        handle_of(main, "main"), handle_of(startup, "startup"), loss, settings)
    _warn(found)
    return Minimized(Program._of(new_main, main._name), Program._of(new_startup, startup._name), grads, rate)


def minimize_options(method=None, **options):
    """The options of :func:`minimize` as one object, for :meth:`millrace.Fleet.distributed_optimizer`."""
    settings = fill(_core.MinimizeOptions(), options)
    if method is not None:
        settings.method = method
    return settings
