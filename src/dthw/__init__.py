"""Distributed training hardware: models, schedules and real runs behind the course.

``import dthw`` needs the standard library alone; each name below loads its module on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dthw.collectives.ddp import ddp_hook
    from dthw.collectives.observe import counters, trace
    from dthw.collectives.run import all_reduce
    from dthw.ranks import RanksFailed, launch

_HOME = {
    "all_reduce": "dthw.collectives.run",
    "counters": "dthw.collectives.observe",
    "ddp_hook": "dthw.collectives.ddp",
    "launch": "dthw.ranks",
    "RanksFailed": "dthw.ranks",
    "trace": "dthw.collectives.observe",
}
_MODULES = ("catalog", "collectives", "draw", "measure", "ranks", "topology", "units")

__all__ = ["RanksFailed", "all_reduce", "counters", "ddp_hook", "launch", "trace"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module(f"dthw.{name}")
    raise AttributeError(f"module 'dthw' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_MODULES])
