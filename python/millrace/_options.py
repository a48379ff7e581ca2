"""Keyword arguments for the option structs of the library, and lists of names."""

from __future__ import annotations

import re
from collections.abc import Mapping


def listed(names, what: str) -> list[str]:
    """Names as a list. A single string would be taken apart into its characters."""
    if isinstance(names, str):
        raise TypeError(f"{what}: expected a list of names, found the string {names!r}")
    names = list(names)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what}: expected names, found {name!r}")
    return names


def arrays_by_name(arrays, what: str = "feeds") -> dict:
    """A mapping as a dict. What numpy.load() returns for an npz file is a mapping, but not a dict."""
    if isinstance(arrays, dict):
        return arrays
    if arrays is None:
        return {}
    if not isinstance(arrays, Mapping):
        raise TypeError(f"{what}: expected a dict of arrays by name, found {type(arrays).__name__}")
    return dict(arrays)


def scope_of(scope):
    """The scope of the extension that belongs to a Scope."""
    return _member(scope, "_core", "Scope", "scope")


def connection_of(connection):
    """The connection of the extension that belongs to a Connection."""
    return _member(connection, "_core", "Connection", "connection")


def handle_of(program, what: str = "program"):
    """The program of the extension that belongs to a Program."""
    return _member(program, "_handle", "Program", what)


def _member(thing, member, kind, what):
    if kind not in (base.__name__ for base in type(thing).__mro__):
        raise TypeError(f"{what}: expected a {kind}, found {type(thing).__name__}")
    return getattr(thing, member)


def names_of(options) -> list[str]:
    """Names of the fields of an option struct."""
    return [name for name in dir(type(options)) if not name.startswith("_")]


def fill(options, settings: dict):
    """Sets fields by name. Unknown names are a TypeError that lists the known ones."""
    known = names_of(options)
    for name, value in settings.items():
        if name not in known:
            raise TypeError(f"{type(options).__name__} has no option '{name}'; it has {', '.join(known)}")
        try:
            setattr(options, name, value)
        except TypeError as error:
            kind = re.search(r"arg: ([^\n]*), /", str(error))
            kind = kind[1] if kind else type(getattr(options, name)).__name__
            limits = " within its limits" if type(value) is int else ""
            raise TypeError(f"{type(options).__name__}.{name}: expected {kind}{limits}, found {value!r}") from None
    return options


class _Options:
    """Base of the classes that option_class() makes."""

    def __init__(self, **settings):
        super().__init__()
        fill(self, settings)

    def __repr__(self):
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names_of(self))
        return f"{type(self).__name__}({fields})"


def option_class(core, doc: str, first: str = ""):
    """A class for users: an option struct whose constructor takes its fields by keyword.

    :param first: field that may be given without a keyword; empty: none
    """
    def __init__(self, *values, **settings):
        if len(values) > (1 if first else 0):
            raise TypeError(f"{core.__name__}: expected options by keyword, found {len(values)} values without")
        if values:
            settings = {first: values[0], **settings}
        _Options.__init__(self, **settings)

    return type(core.__name__, (_Options, core), {"__doc__": doc, "__init__": __init__, "__module__": "millrace"})
