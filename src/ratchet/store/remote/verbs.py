"""The verbs of the store as JSON messages, derived from the signatures of its protocols."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from ratchet import errors
from ratchet.core import events as ev
from ratchet.errors import NotFound, RatchetError
from ratchet.store import protocols

_LOCAL = {"listen", "close"}  # not requests: a stream, and the end of a connection


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a verb returned or raised. `type` names the struct where several are possible."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    type: str = ""
    error: str = ""
    message: str = ""
    hint: str = ""
    ids: dict[str, Any] = {}


def failed(error: RatchetError) -> Outcome:
    ids = {name: value if isinstance(value, int) else str(value) for name, value in error.ids.items()}
    return Outcome(error=type(error).__name__, message=error.message, hint=error.hint, ids=ids)


class Verb:
    """One method of the protocols: encodes and decodes its arguments and its outcome."""

    def __init__(self, name: str, function: Any) -> None:
        hints = get_type_hints(function)
        self.name, self.signature = name, inspect.signature(function)
        self.returns = hints.pop("return")
        self.types = {name: _concrete(kind) for name, kind in hints.items()}
        self.takes_key = "key" in self.types

    def encode_call(self, *args: object, **named: object) -> bytes:
        given = dict(self.signature.bind(None, *args, **named).arguments)
        given.pop("self")
        return msgspec.json.encode({name: _plain(value) for name, value in given.items()})

    def call(self, store: protocols.Store, body: bytes) -> Outcome:
        """Execute the call; an expected error is an outcome too."""
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if unknown := given.keys() - self.types.keys():
            raise msgspec.ValidationError(f"{self.name} does not take {', '.join(sorted(unknown))}")
        named = {name: msgspec.json.decode(raw, type=self.types[name]) for name, raw in given.items()}
        missing = [name for name, one in self.signature.parameters.items() if _is_required(one) and name not in named]
        if missing:
            raise msgspec.ValidationError(f"{self.name} needs {', '.join(missing)}")
        positional = [
            named.pop(name)
            for name, one in self.signature.parameters.items()
            if name in named and one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        try:
            return self._outcome(getattr(store, self.name)(*positional, **named))
        except ValueError as error:  # a value that the types allow and the verb does not
            return Outcome(error=ValueError.__name__, message=str(error))
        except RatchetError as error:
            return failed(error)

    def _outcome(self, value: object) -> Outcome:
        name = type(value).__name__ if len(_structs(self.returns)) > 1 else ""
        return Outcome(value=msgspec.Raw(msgspec.json.encode(value)), type=name)

    def decode_outcome(self, content: bytes) -> Any:
        """Return what the verb returned, or raise what it raised."""
        outcome = msgspec.json.decode(content, type=Outcome)
        if outcome.error == ValueError.__name__:
            raise ValueError(outcome.message)
        if outcome.error:
            kind = getattr(errors, outcome.error, RatchetError)
            raise kind(outcome.message, hint=outcome.hint, **outcome.ids)
        kind = _structs(self.returns)[outcome.type] if outcome.type else _concrete(self.returns)
        return msgspec.json.decode(outcome.value, type=kind)


@cache
def verbs() -> dict[str, Verb]:
    """Return every request of the protocols by name."""
    names = [name for name in dir(protocols.Store) if not name.startswith("_") and name not in _LOCAL]
    return {name: Verb(name, getattr(protocols.Store, name)) for name in names}


def verb(name: str) -> Verb:
    """Raises NotFound."""
    if name not in verbs():
        raise NotFound(f"the store has no verb {name!r}", hint="server and worker must be of the same version")
    return verbs()[name]


def _plain(value: object) -> object:
    """Iterators are sent as lists."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict)) else value


def _concrete(kind: Any) -> Any:
    """Replace abstract types by what is decoded: any iterable is a list, an event is one of the known events."""
    if kind is ev.Event:
        return ev.AnyEvent
    origin, args = get_origin(kind), tuple(_concrete(one) for one in get_args(kind))
    if origin in (types.UnionType, Union):
        return Union[args]  # noqa: UP007 — the members are known at run time only
    if origin is not None and issubclass(origin, Iterable) and origin not in (tuple, dict):
        return list[args[0]]  # type: ignore[valid-type]
    return kind


def _structs(kind: Any) -> dict[str, Any]:
    """Return the members of a union by name; a value of one of several structs needs its name to be decoded."""
    members = get_args(kind) if get_origin(kind) in (types.UnionType, Union) else (kind,)
    structs = {one.__name__: one for one in members if isinstance(one, type) and issubclass(one, msgspec.Struct)}
    return structs if len(structs) > 1 else {}


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.name != "self" and parameter.default is parameter.empty
