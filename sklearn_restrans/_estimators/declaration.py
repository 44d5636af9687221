"""How a parameter is declared once, and what is made of it: constructor, constraints, docstring.

A parameter is a field of a small dataclass (`parameter`). `declared` makes of the fields of a class
what scikit-learn and a reader need: the constructor, the table of constraints, and the sections
"Parameters" and "Attributes" of the docstring.
"""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any, dataclass_transform

# Width of the texts in a docstring: lines of 100 characters, less their indentation.
_WIDTH = 92


def parameter(default, kind, constraint, text, *, kw_only=True) -> Any:
    """A field of an estimator.

    ``kind`` is the type as the docstring names it, ``constraint`` a list that scikit-learn's
    validation reads (its names stand in ``_compat``), ``text`` the description.
    """
    described = {"kind": kind, "constraint": constraint, "text": text}
    return dataclasses.field(default=default, kw_only=kw_only, metadata=described)


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
def declared(cls):
    """Class decorator: constructor, constraints and docstring from the declared parameters.

    The standard library writes ``__init__``, which stores its arguments and does nothing else.
    Equality and repr stay scikit-learn's. Defaults live in the signature alone: a class attribute
    of a parameter's name would hide that an instance lacks it.
    """
    cls = dataclasses.dataclass(eq=False, repr=False)(cls)
    # As in the signature: what may be passed by position comes first.
    parameters = sorted(dataclasses.fields(cls), key=lambda field: field.kw_only)
    for field in parameters:
        if field.name in vars(cls):
            delattr(cls, field.name)
    cls.__init__.__annotations__ = {}  # for editors and type checkers the fields carry them
    cls._parameter_constraints = {f.name: f.metadata["constraint"] for f in parameters}
    if cls.__doc__ is not None and "{parameters}" in cls.__doc__:  # no docstrings under python -OO
        filled = {"parameters": _parameter_section(parameters)}
        filled["attributes"] = _attribute_section(_attributes_of(cls))
        for name, section in filled.items():
            cls.__doc__ = cls.__doc__.replace("{" + name + "}", section)
    return cls


def _attributes_of(cls):
    """Name -> (type, text) of the fitted attributes; a class adds to those of its bases."""
    found = {}
    for base in reversed(cls.__mro__):
        found |= vars(base).get("_attributes", {})
    return found


def _parameter_section(parameters):
    """The numpydoc section of the declared parameters, as it stands in a class docstring."""
    entries = [
        (f"{f.name} : {f.metadata['kind']}, default={_written(f.default)}", f.metadata["text"])
        for f in parameters
    ]
    return _section("Parameters", entries)


def _attribute_section(attributes):
    """The numpydoc section of the fitted attributes; a text of None leaves one out."""
    entries = [
        (f"{name} : {kind}", text) for name, (kind, text) in attributes.items() if text is not None
    ]
    return _section("Attributes", entries)


def _section(title, entries):
    lines = [title, "-" * len(title)]
    for head, text in entries:
        wrapped = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
        lines += [head, *("    " + line for line in wrapped)]
    return "\n    ".join(lines)


def _written(default):
    """A default as the docstring writes it: strings in double quotes, as in the code."""
    return f'"{default}"' if isinstance(default, str) else repr(default)
