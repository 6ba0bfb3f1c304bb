"""Result files: records with the provenance that makes them worth anything.

A file holds ``{"schema": 1, "provenance": {...}, "records": [...]}``. Provenance names the device, its cores, the
versions, the command and the date; a record is what a sweep returns, raw samples included.
"""

import json
import os
import platform
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

SCHEMA = 1


def provenance(command: str) -> dict[str, object]:
    """What was measured where, with what, when."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "device": processor(),
        "cores": cores,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "command": command,
        "date": date.today().isoformat(),
    }


def processor() -> str:
    """The processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    return platform.processor() or platform.machine() or sys.platform


def write(path: Path, records: list[dict[str, object]], command: str) -> None:
    """Write a result file whole or not at all; one record a line, so that a change can be read."""
    lines = ",\n".join("  " + json.dumps(record) for record in records)
    head = json.dumps(provenance(command), indent=1).replace("\n", "\n ")
    text = f'{{\n "schema": {SCHEMA},\n "provenance": {head},\n "records": [\n{lines}\n ]\n}}\n'
    json.loads(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def read(path: str | Path) -> dict[str, Any]:
    """A result file as written by `write`; ValueError where the schema is another one."""
    content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if content.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} has schema {content.get('schema')!r}; this version reads schema {SCHEMA}: measure anew"
        )
    return content
