"""Hardware and published systems, each value with its source, its date and how sure it is.

>>> from dthw import catalog
>>> h100 = catalog.gpu("H100 SXM")
>>> print(h100.scale_up)
450 GB/s per direction
>>> fact = h100.source_of("scale_up")
>>> fact.printed, fact.status
('900 GB/s bidirectional', 'spec')
>>> round(h100.scale_up / catalog.link(h100.host_link).bandwidth, 2)
7.14
>>> catalog.gpu("H100")
Traceback (most recent call last):
LookupError: no gpu is named 'H100': near are H100 SXM, H100 PCIe; dthw.catalog.gpus() lists all ...

Each function returns frozen entries of `dthw.catalog.entries`; the data files beside this one are read on first use.
Standard library alone.
"""

from dthw.catalog.entries import GPU, NIC, Conflict, Entry, Fact, Link, Run, Source, Switch, System
from dthw.catalog.load import entries, find

__all__ = [
    "GPU", "NIC", "Conflict", "Entry", "Fact", "Link", "Run", "Source", "Switch", "System",
    "gpu", "gpus", "link", "links", "nic", "nics", "run", "runs", "switch", "switches", "system", "systems",
]  # fmt: skip


def gpu(name: str) -> GPU:
    """The accelerator of that name; LookupError that suggests near ones.

    >>> gpu("TPU v5p").memory_bytes / 1e9, gpu("MI300X").pair
    (95.0, Bandwidth.per_direction(64.0 * GB))
    """
    return find(GPU, name)


def gpus() -> tuple[GPU, ...]:
    """All accelerators, by vendor and generation."""
    return entries(GPU)


def link(name: str) -> Link:
    """The kind of link of that name; LookupError that suggests near ones.

    >>> ndr = link("InfiniBand NDR 4x")
    >>> print(ndr.bandwidth, ndr.lanes)
    50 GB/s per direction 4
    """
    return find(Link, name)


def links() -> tuple[Link, ...]:
    """All kinds of link, by family and generation."""
    return entries(Link)


def switch(name: str) -> Switch:
    """The switch of that name; LookupError that suggests near ones.

    >>> switch("QM9700").ports
    64
    """
    return find(Switch, name)


def switches() -> tuple[Switch, ...]:
    """All switch chips and boxes."""
    return entries(Switch)


def nic(name: str) -> NIC:
    """The network adapter of that name; LookupError that suggests near ones.

    >>> print(nic("ConnectX-7").bandwidth)
    50 GB/s per direction
    """
    return find(NIC, name)


def nics() -> tuple[NIC, ...]:
    """All network adapters."""
    return entries(NIC)


def system(name: str) -> System:
    """The published cluster or design of that name; LookupError that suggests near ones.

    >>> system("Meta RoCE 24K").accelerators
    24576
    """
    return find(System, name)


def systems() -> tuple[System, ...]:
    """All published clusters and network designs."""
    return entries(System)


def run(name: str) -> Run:
    """The published count of failures of that name; LookupError that suggests near ones.

    >>> llama = run("Llama 3 405B")
    >>> round(llama.job_mtbf_s / 3600, 2)
    3.09
    """
    return find(Run, name)


def runs() -> tuple[Run, ...]:
    """All published counts of failures."""
    return entries(Run)
