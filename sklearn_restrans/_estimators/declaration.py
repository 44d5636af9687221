"""How a parameter is declared once, and what is made of it: constructor, constraints, docstring.

A class body declares parameters as it would fields of a dataclass (`parameter`). `declared` makes
of them, and of those of its bases, what scikit-learn and a reader need: the constructor, the table
of constraints, and the sections "Parameters" and "Attributes" of the docstring.
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


def again(cls, name) -> Any:
    """The parameter of that name as another class declares it."""
    return cls._declared[name]


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
def declared(cls):
    """Class decorator: constructor, constraints and docstring from the declared parameters.

    The standard library writes ``__init__``, which stores its arguments and does nothing else: it
    is that of a dataclass of the same fields. The class itself is not made a dataclass, since
    pandas, ``asdict`` and others take those apart. Defaults live in the signature alone: a class
    attribute of a parameter's name would hide that an instance lacks it.
    """
    own = {name: value for name, value in vars(cls).items() if isinstance(value, dataclasses.Field)}
    for name in own:
        delattr(cls, name)
    cls._declared = own
    found = {}
    for base in reversed(cls.__mro__):
        found |= vars(base).get("_declared", {})
    # As in the signature: what may be passed by position comes first.
    parameters = [_named(name, field) for name, field in found.items()]
    parameters.sort(key=lambda field: field.kw_only)
    made = dataclasses.make_dataclass(
        cls.__name__, [(field.name, Any, field) for field in parameters], eq=False, repr=False
    )
    cls.__init__ = made.__init__
    cls.__init__.__annotations__ = {}  # for editors and type checkers the class body has them
    cls.__init__.__doc__ = "Store the parameters."
    cls.__init__.__module__ = cls.__module__
    cls._parameter_constraints = {f.name: f.metadata["constraint"] for f in parameters}
    if cls.__doc__ is not None and "{parameters}" in cls.__doc__:
        filled = {"parameters": _parameter_section(parameters)}
        filled["attributes"] = _attribute_section(_attributes_of(cls))
        for name, section in filled.items():
            cls.__doc__ = cls.__doc__.replace("{" + name + "}", section)
    return cls


def parameter_names(cls):
    """Names of the declared parameters of a class, in the order of its signature."""
    return list(cls._parameter_constraints)


def _named(name, field):
    """A copy of a field for one constructor: a dataclass writes into those that it is given."""
    copy = dataclasses.field(default=field.default, kw_only=field.kw_only, metadata=field.metadata)
    copy.name = name
    return copy


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
