"""Write the catalog as Markdown tables, with every source, contradiction and note.

    python docs/catalog.py [--out FOLDER]

Writes _generated/catalog-NAME.md, which pages include by ``--8<-- "docs/_generated/catalog-NAME.md"``. A pure function
of the package: the same bytes each time, and a test fails when a table is stale.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dthw import catalog
from dthw.catalog.entries import Entry, Fact
from dthw.units import GB, Bandwidth, day, hour, us

DOCS = Path(__file__).parent

# Heading, field, and what one of the heading's unit is: rates in GB/s, FLOP/s in tera.
Column = tuple[str, str, float]
TABLES: dict[str, tuple[Column, ...]] = {
    "gpus": (
        ("Accelerator", "name", 1),
        ("Memory, GB", "memory_bytes", GB),
        ("Kind", "memory", 1),
        ("Memory, GB/s", "hbm_bytes_per_s", GB),
        ("FP16, TFLOP/s", "fp16_flops", 1e12),
        ("BF16, TFLOP/s", "bf16_flops", 1e12),
        ("FP8, TFLOP/s", "fp8_flops", 1e12),
        ("Scale-up, GB/s per direction", "scale_up", GB),
        ("To one peer, GB/s per direction", "pair", GB),
        ("Scale-up domain", "domain", 1),
        ("Host link", "host_link", 1),
        ("Power, W", "power_w", 1),
    ),
    "links": (
        ("Link", "name", 1),
        ("Counted for", "of", 1),
        ("GB/s per direction", "bandwidth", GB),
        ("Lanes", "lanes", 1),
        ("Signalling, Gbit/s a lane", "lane_bits_per_s", 1e9),
        ("Encoding", "encoding", 1),
        ("Links", "links", 1),
        ("GB/s per link and direction", "per_link", GB),
        ("Measured, GB/s per direction", "measured", GB),
        ("Latency, us", "latency_s", us),
    ),
    "switches": (
        ("Switch", "name", 1),
        ("Network", "network", 1),
        ("Ports", "ports", 1),
        ("GB/s per port and direction", "port", GB),
        ("All ports, GB/s per direction", "total", GB),
    ),
    "nics": (
        ("Adapter", "name", 1),
        ("Network", "network", 1),
        ("GB/s per direction", "bandwidth", GB),
        ("Host link", "host_link", 1),
    ),
    "systems": (
        ("System", "name", 1),
        ("Year", "year", 1),
        ("Accelerator", "accelerator", 1),
        ("Accelerators", "accelerators", 1),
        ("Fabric", "fabric", 1),
        ("Tiers", "tiers", 1),
        ("Oversubscription", "oversubscription", 1),
        ("Pod or group", "pod", 1),
        ("NIC, GB/s per direction", "nic", GB),
        ("Routing", "routing", 1),
    ),
    "runs": (
        ("Who counted", "name", 1),
        ("Accelerator", "accelerator", 1),
        ("Accelerators", "accelerators", 1),
        ("Days", "duration_s", day),
        ("Failures", "failures", 1),
        ("What was counted", "basis", 1),
        ("Mean hours between failures", "job_mtbf_s", hour),
        ("Mean days of one accelerator", "per_accelerator_mtbf_s", day),
        ("Goodput", "goodput", 1),
    ),
}


def cell(value: Any, unit: float) -> str:
    """A value in the unit of its column."""
    if isinstance(value, Bandwidth):
        value = value.one_way
    if value is None or isinstance(value, str):
        return (value or "").replace("|", "\\|")
    number = float(f"{value / unit:.6g}")
    return f"{number:,.10g}" if number >= 10_000 and unit != 1 else f"{number:.10g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> list[str]:
    """A Markdown table that scrolls by itself where the screen is narrow."""
    rule = ["--:" if number else "---" for number in right] or ["---"] * len(head)
    lines = [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]
    return ["/// html | div.scroll", *lines, "///", ""]


def is_number(value: Any) -> bool:
    return value is not None and not isinstance(value, str)


def marked(entry: Entry, field: str, unit: float) -> str:
    """A cell, followed by how sure its value is unless its maker says so; a name speaks for all values."""
    fact = entry.facts.get(field)
    text = fact.printed if fact and field == "encoding" else cell(getattr(entry, field), unit)
    announced = all(fact.status == "announced" for fact in entry.facts.values())
    if field == "name":
        return f"{text} (announced)" if announced else text
    return f"{text} ({fact.status})" if fact and fact.status in ("assumed", "announced") and not announced else text


def called(field: str, headings: Mapping[str, str]) -> str:
    """A field as its column is headed, or in words."""
    return headings.get(field, field.removesuffix("_hz").replace("_", " "))


def source_key(fact: Fact) -> tuple[str, str, str]:
    return fact.source.title, fact.source.link, fact.source.section


def page(name: str) -> str:
    """One table, then what else is in circulation, then notes, then sources."""
    entries: tuple[Entry, ...] = getattr(catalog, name)()
    columns = TABLES[name]
    found: dict[tuple[str, str, str], int] = {}
    for entry in entries:
        for fact in entry.facts.values():
            found.setdefault(source_key(fact), len(found) + 1)
    rows = []
    for entry in entries:
        numbers = sorted({found[source_key(fact)] for fact in entry.facts.values()})
        quoted = ", quoted" if any(fact.evidence == "quoted" for fact in entry.facts.values()) else ""
        rows.append(
            [*(marked(entry, field, unit) for _, field, unit in columns), ", ".join(map(str, numbers)) + quoted]
        )
    right = [
        field != "encoding" and all(is_number(v) for e in entries if (v := getattr(e, field)) is not None)
        for _, field, _ in columns
    ]
    lines = table([*(heading for heading, _, _ in columns), "Source"], rows, [*right, False])

    headings = {field: heading for heading, field, _ in columns}
    others = [
        [entry.name, called(one.field, headings), cell(one.says, 1), cell(one.why, 1)]
        for entry in entries
        for one in entry.conflicts
    ]
    if others:
        lines += ["Also in circulation, and why it is not the value above:", ""]
        lines += table(["Entry", "Field", "Says", "Why not"], others)
    grouped: dict[str, list[str]] = {}
    for entry in entries:
        if entry.note:
            grouped.setdefault(f"{entry.note}.", []).append(entry.name)
    for entry in entries:
        for field, fact in entry.facts.items():
            if fact.note:
                sure = f" ({fact.status})" if fact.status in ("assumed", "derived") else ""
                text = f"{called(field, headings)}{sure}: {fact.note}."
                grouped.setdefault(text, []).append(entry.name)
    notes = [f"- {'; '.join(names)}: {text}" for text, names in grouped.items()]
    if notes:
        lines += ["Notes:", "", *notes, ""]
    dates = sorted({fact.as_of.isoformat() for entry in entries for fact in entry.facts.values()})
    lines += [f"Sources, as of {', '.join(dates)}:", ""]
    for (title, link, section), number in found.items():
        lines.append(f"{number}. [{title}]({link})" + (f", {section}" if section else ""))
    return "\n".join([*lines, ""])


def main() -> None:
    """Write all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=DOCS, help="folder that gets _generated")
    folder = parser.parse_args().out / "_generated"
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        (folder / f"catalog-{name}.md").write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    main()
