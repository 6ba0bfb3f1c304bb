"""Reads the data files, once each, into entries; anything that is missing, unknown or misspelt there is an error.

A file is a list of tables, ``[[gpu]]`` in ``gpus.toml``. Beside its fields an entry has ``source`` (a key of
``sources.toml``, or its own title and link), and where they differ from the usual ``section``, ``status``, ``evidence``
and ``as_of``; ``about.FIELD`` says the same for one field alone, and ``conflict`` lists what else is in circulation.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from datetime import date
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from dthw.catalog.entries import Conflict, Entry, Evidence, Fact, Source, Status
from dthw.units import Bandwidth

E = TypeVar("E", bound=Entry)
READERS: Mapping[Any, Callable[[Any], Any]] = {Bandwidth: Bandwidth.parse, str: str, int: int, float: float}
_TABLES: dict[str, dict[str, Entry]] = {}
ABOUT = {"source", "section", "status", "evidence", "as_of"}


def find(kind: type[E], name: str) -> E:
    """The entry of that name, however it is capitalised and spaced; LookupError that names near ones."""
    table: dict[str, E] = _table(kind)
    if found := table.get(_fold(name)):
        return found
    names = [entry.name for entry in table.values()]
    folded = _fold(name)
    near = [entry.name for key, entry in table.items() if folded and (folded in key or key in folded)]
    near += [table[key].name for key in get_close_matches(folded, table, n=5) if table[key].name not in near]
    hint = f"near are {', '.join(near[:8])}" if near else f"there are {', '.join(names[:8])}"
    raise LookupError(f"no {kind.WORD} is named {name!r}: {hint}; dthw.catalog.{kind.TABLE}() lists all {len(names)}")


def entries(kind: type[E]) -> tuple[E, ...]:
    """All entries of a kind, in the order of its file."""
    return tuple(_table(kind).values())


def _fold(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _parse(stem: str) -> dict[str, Any]:
    return tomllib.loads(files("dthw.catalog").joinpath(f"{stem}.toml").read_text(encoding="utf-8"))


@cache
def _sources() -> dict[str, dict[str, str]]:
    return _parse("sources")


def _table(kind: type[E]) -> dict[str, Any]:
    if kind.TABLE not in _TABLES:
        content = _parse(kind.TABLE)
        made: dict[str, Entry] = {}
        for raw in content[kind.WORD]:
            try:
                entry = build(kind, raw, content["as_of"])
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{kind.TABLE}.toml, {raw.get('name')!r}: {error}") from error
            if made.setdefault(_fold(entry.name), entry) is not entry:
                raise ValueError(f"{kind.TABLE}.toml has {entry.name!r} twice")
        _TABLES[kind.TABLE] = made
    return _TABLES[kind.TABLE]


def readers(kind: type[Entry]) -> dict[str, Callable[[Any], Any]]:
    """How each field of that kind is read from the data file."""
    hints = get_type_hints(kind, include_extras=True)
    shared = {field.name for field in fields(Entry)} - {"name"}
    return {field.name: _reader(hints[field.name]) for field in fields(kind) if field.name not in shared}


def _reader(hint: Any) -> Callable[[Any], Any]:
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not type(None))
    if get_origin(hint) is Annotated:
        read: Callable[[Any], Any] = hint.__metadata__[0]
        return read
    return READERS[hint]


def build(kind: type[E], raw: Mapping[str, Any], as_of: date) -> E:
    """One entry from its table in the data file; ValueError where the two do not fit."""
    read = readers(kind)
    unknown = set(raw) - set(read) - ABOUT - {"note", "about", "conflict"}
    missing = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING} - set(raw)
    if unknown or missing:
        raise ValueError(f"unknown fields {sorted(unknown)}, missing fields {sorted(missing)}")
    given = [name for name in read if name in raw and name != "name"]
    special: Mapping[str, Any] = raw.get("about", {})
    conflicts = tuple(Conflict(**one) for one in raw.get("conflict", ()))
    strangers = (set(special) | {one.field for one in conflicts}) - set(read)
    if strangers:
        raise ValueError(f"says something about {sorted(strangers)}, which are no fields")
    usual = {"as_of": as_of, **{name: raw[name] for name in ABOUT if name in raw}}
    return kind(
        **{name: read[name](raw[name]) for name in ["name", *given]},
        note=raw.get("note", ""),
        conflicts=conflicts,
        facts={name: _fact(str(raw[name]), {**usual, **special.get(name, {})}) for name in given},
    )


def _fact(printed: str, about: Mapping[str, Any]) -> Fact:
    source = about["source"]
    known = _sources()[source] if isinstance(source, str) else source
    status, evidence = about.get("status", "spec"), about.get("evidence", "primary")
    for value, allowed in ((status, get_args(Status)), (evidence, get_args(Evidence))):
        if value not in allowed:
            raise ValueError(f"{value!r}: expected one of {', '.join(allowed)}")
    where = Source(known["title"], known["link"], about.get("section", ""))
    return Fact(printed, status, evidence, where, about["as_of"], about.get("note", ""))
