"""Keyword arguments for the option structs of the library, and lists of names."""

from __future__ import annotations


def listed(names, what: str) -> list[str]:
    """Names as a list. A single string would be taken apart into its characters."""
    if isinstance(names, str):
        raise TypeError(f"{what}: expected a list of names, found the string {names!r}")
    return list(names)


def names_of(options) -> list[str]:
    """Names of the fields of an option struct."""
    return [name for name in dir(type(options)) if not name.startswith("_")]


def fill(options, settings: dict):
    """Sets fields by name. Unknown names are a TypeError that lists the known ones."""
    known = names_of(options)
    for name, value in settings.items():
        if name not in known:
            raise TypeError(f"{type(options).__name__} has no option '{name}'; it has {', '.join(known)}")
        setattr(options, name, value)
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
