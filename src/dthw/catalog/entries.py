"""What a catalog entry is: typed fields, and behind each field how the source prints it, which source, and when.

A field's type says how the text of the data file is read: ``"80 GB"`` becomes 80e9 bytes, ``"900 GB/s bidirectional"``
a `Bandwidth`, ``"54 days"`` seconds. Memory bandwidth is a plain number of bytes per second, because reads and writes
share it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, ClassVar, Literal

from dthw.units import DECIMAL, SECONDS, Bandwidth, day, ns, parse_size

Status = Literal["spec", "measured", "derived", "assumed", "announced"]
Evidence = Literal["primary", "quoted"]


@dataclass(frozen=True, slots=True)
class Source:
    """A title and a link; ``section`` says where in it."""

    title: str
    link: str
    section: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """Where one field's value comes from.

    ``printed`` is the value as the data file has it, unit and direction included. ``status``: *spec*, the maker says
    so; *measured*; *derived*, computed from other fields, which a test does again; *assumed*, a working value without
    a published one; *announced*, of a product not yet sold. ``evidence``: *primary*, read in the source itself;
    *quoted*, read in a text that quotes it. What was published after ``as_of`` is not in it.
    """

    printed: str
    status: Status
    evidence: Evidence
    source: Source
    as_of: date
    note: str = ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another value in circulation for the same field, and why it was not chosen."""

    field: str
    says: str
    why: str


@dataclass(frozen=True, eq=False)
class Number:
    """How a number with one of these units is read."""

    units: Mapping[str, float]
    ends: str = ""

    def __call__(self, text: str) -> float:
        number, _, unit = text.partition(" ")
        name = unit.removesuffix(self.ends)
        if name not in self.units or not unit.endswith(self.ends):
            known = ", ".join(name + self.ends for name in self.units)
            raise ValueError(f"{text!r}: expected a number and one of {known}")
        return float(number.replace(",", "")) * self.units[name]


def _ratio(text: str) -> float:
    """Payload of an encoding: "128b/130b", or a product such as "256b/257b x 514/544"."""
    value = 1.0
    for factor in text.split(" x "):
        pair = re.fullmatch(r"(\d+)b?/(\d+)b?", factor)
        if not pair:
            raise ValueError(f"{text!r} is not an encoding: expected one such as '128b/130b'")
        value *= int(pair[1]) / int(pair[2])
    return value


Bytes = Annotated[float, parse_size]
BytesPerSecond = Annotated[float, Number(DECIMAL, "/s")]
Flops = Annotated[float, Number({"TFLOP": 1e12}, "/s")]
Hertz = Annotated[float, Number({"MHz": 1e6, "GHz": 1e9})]
Watts = Annotated[float, Number({"W": 1.0})]
Seconds = Annotated[float, Number({**SECONDS, "ns": ns})]
Signalling = Annotated[float, Number({"Gbit": 1e9, "GT": 1e9}, "/s")]
Ratio = Annotated[float, _ratio]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What all entries have; equality looks at the values, not at where they come from."""

    TABLE: ClassVar[str]
    WORD: ClassVar[str]

    name: str
    note: str = ""
    conflicts: tuple[Conflict, ...] = field(default=(), compare=False)
    facts: Mapping[str, Fact] = field(default_factory=dict, repr=False, compare=False)

    def source_of(self, name: str) -> Fact:
        """Where the value of a field comes from; LookupError where the catalog gives none."""
        try:
            return self.facts[name]
        except KeyError:
            raise LookupError(f"{self.name} gives no {name!r}; it gives {', '.join(self.facts)}") from None


@dataclass(frozen=True, kw_only=True)
class GPU(Entry):
    """One accelerator as software sees it. FLOP/s are dense; ``scale_up`` adds up all its links to its peers.

    ``pair`` is what two peers have between them, ``domain`` how many accelerators the scale-up network joins.
    ``scale_up_link`` and ``host_link`` name entries of `dthw.catalog.links`.
    """

    TABLE: ClassVar[str] = "gpus"
    WORD: ClassVar[str] = "gpu"

    vendor: str
    memory_bytes: Bytes
    memory: str
    hbm_bytes_per_s: BytesPerSecond
    bf16_flops: Flops | None = None
    fp16_flops: Flops | None = None
    fp8_flops: Flops | None = None
    scale_up: Bandwidth | None = None
    scale_up_link: str | None = None
    pair: Bandwidth | None = None
    domain: int | None = None
    topology: str | None = None
    host_link: str | None = None
    power_w: Watts | None = None
    clock_hz: Hertz | None = None
    fma_per_cycle: int | None = None
    units: int | None = None

    @property
    def flops_from_clock(self) -> float | None:
        """Peak FLOP/s by arithmetic: clock x fused multiply-adds per cycle and unit x 2 x units."""
        if self.clock_hz is None or self.fma_per_cycle is None or self.units is None:
            return None
        return self.clock_hz * self.fma_per_cycle * 2 * self.units


@dataclass(frozen=True, kw_only=True)
class Link(Entry):
    """One kind of link; ``of`` says what its bandwidth is counted for: a slot, a port, a GPU, a node."""

    TABLE: ClassVar[str] = "links"
    WORD: ClassVar[str] = "link"

    family: str
    of: str
    bandwidth: Bandwidth
    lanes: int | None = None
    lane_bits_per_s: Signalling | None = None
    encoding: Ratio | None = None
    links: int | None = None
    per_link: Bandwidth | None = None
    measured: Bandwidth | None = None
    latency_s: Seconds | None = None

    @property
    def from_lanes(self) -> Bandwidth | None:
        """The bandwidth by arithmetic: lanes x signalling rate x encoding; None where one of them is not given."""
        if self.lanes is None or self.lane_bits_per_s is None or self.encoding is None:
            return None
        return Bandwidth.per_direction(self.lanes * self.lane_bits_per_s * self.encoding / 8)


@dataclass(frozen=True, kw_only=True)
class Switch(Entry):
    """A switch chip or box: ``ports`` of ``port`` bandwidth each."""

    TABLE: ClassVar[str] = "switches"
    WORD: ClassVar[str] = "switch"

    vendor: str
    network: str
    ports: int
    port: Bandwidth
    total: Bandwidth

    @property
    def from_ports(self) -> Bandwidth:
        """What all ports carry together."""
        return self.port * self.ports


@dataclass(frozen=True, kw_only=True)
class NIC(Entry):
    """A network adapter."""

    TABLE: ClassVar[str] = "nics"
    WORD: ClassVar[str] = "nic"

    vendor: str
    network: str
    bandwidth: Bandwidth
    host_link: str | None = None


@dataclass(frozen=True, kw_only=True)
class System(Entry):
    """A published cluster or network design, in the words of those who built it."""

    TABLE: ClassVar[str] = "systems"
    WORD: ClassVar[str] = "system"

    year: int
    accelerator: str | None = None
    accelerators: int | None = None
    servers: int | None = None
    per_server: int | None = None
    nics_per_server: int | None = None
    nic: Bandwidth | None = None
    fabric: str
    tiers: str | None = None
    switch: str | None = None
    radix: int | None = None
    oversubscription: str | None = None
    pod: str | None = None
    switches: str | None = None
    routing: str | None = None
    congestion: str | None = None
    storage: str | None = None
    claims: str | None = None


@dataclass(frozen=True, kw_only=True)
class Run(Entry):
    """Failures that somebody counted: in one training run, in a fleet, or in a machine's life.

    What is published differs: a count over a time, a rate per node, or a mean time. The properties bring them together.
    """

    TABLE: ClassVar[str] = "runs"
    WORD: ClassVar[str] = "run"

    system: str
    accelerator: str | None = None
    accelerators: int | None = None
    per_node: int = 8
    duration_s: Seconds | None = None
    failures: int | None = None
    basis: str
    node_failures_per_1000_days: float | None = None
    mtbf_s: Seconds | None = None
    accelerator_mtbf_s: Seconds | None = None
    restart: str | None = None
    checkpoint_interval: str | None = None
    checkpoint_cost: str | None = None
    goodput: str | None = None

    @property
    def job_mtbf_s(self) -> float | None:
        """Mean seconds between failures of the whole: as published, or time / failures, or from the rate per node."""
        if self.mtbf_s is not None:
            return self.mtbf_s
        if self.duration_s is not None and self.failures is not None:
            return self.duration_s / self.failures
        if self.node_failures_per_1000_days is not None and self.accelerators is not None:
            return 1000 * day / self.node_failures_per_1000_days / (self.accelerators / self.per_node)
        return None

    @property
    def per_accelerator_mtbf_s(self) -> float | None:
        """Mean seconds that one accelerator runs between the failures it takes part in; None where nothing says."""
        if self.accelerator_mtbf_s is not None:
            return self.accelerator_mtbf_s
        whole = self.job_mtbf_s
        return None if whole is None or self.accelerators is None else whole * self.accelerators
