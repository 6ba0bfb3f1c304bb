"""Every value has a source, every derived value is derived again, and names that do not exist suggest some that do."""

import csv
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from datetime import date
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest

from dthw import catalog
from dthw.catalog import load
from dthw.catalog.entries import GPU, NIC, Entry, Evidence, Link, Run, Status, Switch, System
from dthw.units import GB, Bandwidth, Gbit, GiB, day, hour

ROOT = Path(__file__).parents[2]
DATA = ROOT / "src" / "dthw" / "catalog"
KINDS: tuple[type[Entry], ...] = (GPU, Link, Switch, NIC, System, Run)
ALL = [entry for kind in KINDS for entry in load.entries(kind)]


@cache
def oracles() -> dict[str, float]:
    with (ROOT / "tests" / "data" / "catalog-oracles.csv").open(encoding="utf-8") as file:
        return {row["name"]: float(row["expected"]) for row in csv.DictReader(file)}


def named(prefix: str) -> list[tuple[str, float]]:
    return [(name.removeprefix(prefix), value) for name, value in oracles().items() if name.startswith(prefix)]


def facts() -> Iterator[tuple[str, str, catalog.Fact]]:
    for entry in ALL:
        for field, fact in entry.facts.items():
            yield f"{entry.WORD} {entry.name}", field, fact


# --- Every value has a source ---


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: f"{entry.WORD}-{entry.name}")
def test_each_field_that_is_given_says_where_it_comes_from(entry: Entry) -> None:
    given = {
        f.name for f in fields(entry) if f.name in load.readers(type(entry)) and getattr(entry, f.name) is not None
    }
    assert given - set(entry.facts) <= {"name", "per_node"}
    for name, fact in entry.facts.items():
        assert fact.printed and getattr(entry, name) is not None
        assert fact.source.title and re.fullmatch(r"https://[\w.-]+/\S*", fact.source.link)
        assert fact.status in get_args(Status) and fact.evidence in get_args(Evidence)
        assert fact.as_of >= date(2026, 1, 1)
        assert entry.source_of(name) is fact


def test_nothing_unconfirmed_is_shipped() -> None:
    for path in DATA.glob("*.toml"):
        found = re.findall(r"(?i)unconfirmed|recalled|unverified|to be checked", path.read_text(encoding="utf-8"))
        assert found == [], path.name


def test_each_table_has_what_it_promises() -> None:
    counted = {kind.TABLE: len(load.entries(kind)) for kind in KINDS}
    assert counted == {"gpus": 25, "links": 43, "switches": 7, "nics": 5, "systems": 39, "runs": 34}
    assert sorted(counted) == sorted(path.stem for path in DATA.glob("*.toml") if path.stem != "sources")
    for kind in KINDS:
        assert getattr(catalog, kind.TABLE)() == load.entries(kind)


def test_names_are_unique_however_they_are_written() -> None:
    for kind in KINDS:
        names = [re.sub(r"[^a-z0-9]", "", entry.name.lower()) for entry in load.entries(kind)]
        assert len(names) == len(set(names))


def test_every_shared_source_is_used() -> None:
    sources = tomllib.loads((DATA / "sources.toml").read_text(encoding="utf-8"))
    text = "".join(path.read_text(encoding="utf-8") for path in DATA.glob("*.toml") if path.stem != "sources")
    assert {key for key in sources if f'source = "{key}"' not in text} == set()


def test_what_is_not_sold_yet_is_announced() -> None:
    announced = {name for name, _, fact in facts() if fact.status == "announced"}
    assert announced == {
        "gpu Rubin", "link PCIe 7.0 x16", "link NVLink 6", "link NVLink-C2C (Vera)", "link InfiniBand GDR 4x",
        "nic ConnectX-9",
    }  # fmt: skip


def test_an_assumption_says_what_it_rests_on() -> None:
    assumed = [(name, field, fact) for name, field, fact in facts() if fact.status == "assumed"]
    assert {name for name, _, _ in assumed} == {
        "gpu MI350X", "gpu TPU v4", "link ICI TPU v4", "run MegaScale", "run StepFun trace", "run GPT-4, reportedly",
    }  # fmt: skip
    for name, _, fact in assumed:
        word, _, rest = name.partition(" ")
        assert fact.note or getattr(catalog, word)(rest).note


def test_contradictions_stand_beside_the_choice() -> None:
    says = {(entry.name, one.field): one.says for entry in ALL for one in entry.conflicts}
    assert says["B200 SXM", "memory_bytes"] == "192 GB"
    assert says["H100 SXM", "bf16_flops"] == "1979 TFLOP/s"
    assert says["MI355X", "bf16_flops"] == "2300 TFLOP/s"
    assert says["TPU v5e", "hbm_bytes_per_s"] == "800 GiB/s"
    assert says["NVSwitch 3", "total"] == "7.2 TB/s"
    assert says["Frontier", "servers"] == "9856"
    assert all(one.why for entry in ALL for one in entry.conflicts)


# --- What is derived is derived again ---


@pytest.mark.parametrize("link", [link for link in catalog.links() if link.from_lanes], ids=lambda link: link.name)
def test_lanes_times_signalling_times_encoding_is_the_bandwidth(link: Link) -> None:
    assert link.from_lanes is not None
    assert link.from_lanes / link.bandwidth == pytest.approx(1, rel=3e-5)
    assert link.source_of("bandwidth").status in ("derived", "announced")


def test_every_generation_of_pcie_and_infiniband_is_as_published() -> None:
    for key, expected in named("pcie"):
        assert catalog.link(f"PCIe {key[0]}.0 x16").bandwidth.one_way / GB == pytest.approx(expected, rel=1e-6)
    for key, expected in named("ib_"):
        link = catalog.link(f"InfiniBand {key.removesuffix('_4x')} 4x")
        assert link.bandwidth.one_way / Gbit == pytest.approx(expected, rel=1e-6)
    assert len(named("pcie")) == 5 and len(named("ib_")) == 6


def test_forward_error_correction_makes_a_lane_of_53_gigabits_carry_exactly_50() -> None:
    for name, gigabits in (("HDR", 200), ("NDR", 400), ("XDR", 800)):
        link = catalog.link(f"InfiniBand {name} 4x")
        assert link.encoding == pytest.approx(16 / 17)
        assert link.from_lanes is not None and link.from_lanes.one_way / Gbit == pytest.approx(gigabits)
    for name in ("NVLink 4", "NVLink 5"):
        link = catalog.link(name)
        assert link.lane_bits_per_s is not None and link.encoding is not None and link.per_link is not None
        assert 2 * link.lane_bits_per_s * link.encoding / 8 == pytest.approx(link.per_link.one_way)


@pytest.mark.parametrize("link", [link for link in catalog.links() if link.links], ids=lambda link: link.name)
def test_links_times_what_each_carries_is_the_bandwidth(link: Link) -> None:
    assert link.links is not None and link.per_link is not None
    assert link.per_link * link.links == link.bandwidth


@pytest.mark.parametrize("switch", catalog.switches(), ids=lambda switch: switch.name)
def test_ports_times_what_each_carries_is_the_switch(switch: Switch) -> None:
    assert switch.from_ports == switch.total


def test_a_rack_has_as_many_switch_ports_as_links() -> None:
    links = catalog.link("NVLink 5").links
    assert links is not None and 72 * links == 18 * catalog.switch("NVLink 5 Switch").ports


@pytest.mark.parametrize("gpu", [g for g in catalog.gpus() if g.flops_from_clock], ids=lambda gpu: gpu.name)
def test_clock_times_units_is_the_peak_that_is_printed(gpu: GPU) -> None:
    assert gpu.flops_from_clock is not None and gpu.bf16_flops is not None
    assert gpu.flops_from_clock / gpu.bf16_flops == pytest.approx(1, rel=7e-3)


def test_peaks_from_clocks_are_the_oracles() -> None:
    short = {"H100_SXM": "H100 SXM", "A100_SXM": "A100 SXM 80GB"}
    for key, expected in named("bf16_peak_"):
        peak = catalog.gpu(short.get(key, key)).flops_from_clock
        assert peak is not None and peak / 1e12 == pytest.approx(expected, rel=3e-6)
    assert len(named("bf16_peak_")) == 5


@pytest.mark.parametrize("gpu", catalog.gpus(), ids=lambda gpu: gpu.name)
def test_a_gpu_agrees_with_the_links_it_names(gpu: GPU) -> None:
    if gpu.host_link:
        assert catalog.link(gpu.host_link)
    if gpu.scale_up_link:
        link = catalog.link(gpu.scale_up_link)
        assert link.bandwidth == gpu.scale_up
        switched = gpu.topology is not None and gpu.topology.startswith("switched")
        if gpu.pair:
            assert gpu.pair == (link.bandwidth if switched else link.per_link)


def test_fully_connected_boards_share_their_bandwidth_among_seven_peers() -> None:
    meshed = [gpu for gpu in catalog.gpus() if (gpu.topology or "").startswith("fully connected")]
    assert len(meshed) == 5
    for gpu in meshed:
        assert gpu.pair is not None and gpu.pair * 7 == gpu.scale_up


def test_nics_agree_with_what_they_plug_into() -> None:
    for nic in catalog.nics():
        if nic.host_link:
            assert nic.bandwidth < catalog.link(nic.host_link).bandwidth
        for generation in ("HDR", "NDR", "XDR"):
            if generation in nic.network:
                assert nic.bandwidth == catalog.link(f"InfiniBand {generation} 4x").bandwidth


def test_bandwidth_over_pcie_in_one_direction_is_never_thirty_times() -> None:
    hosts = {"pcie3": "PCIe 3.0 x16", "pcie4": "PCIe 4.0 x16", "pcie5": "PCIe 5.0 x16", "pcie6": "PCIe 6.0 x16"}
    names = {"P100": "P100 SXM2", "V100": "V100 SXM2", "A100": "A100 SXM 80GB", "H100": "H100 SXM", "B200": "B200 SXM"}
    ratios = named("nvlink_pcie_ratio_")
    for key, expected in ratios:
        if key == "measured_H200":
            nvlink, pcie = catalog.link("NVLink 4").measured, catalog.link("PCIe 5.0 x16").measured
        else:
            gpu, _, host = key.partition("_")
            nvlink, pcie = catalog.gpu(names.get(gpu, gpu)).scale_up, catalog.link(hosts[host]).bandwidth
        assert nvlink is not None and pcie is not None
        assert nvlink / pcie == pytest.approx(expected, rel=1e-4)
        assert nvlink / pcie < 15
    assert len(ratios) == 8


def test_measured_is_less_than_specified() -> None:
    measured = [link for link in catalog.links() if link.measured]
    assert len(measured) == 5
    for link in measured:
        assert link.measured is not None and link.source_of("measured").status == "measured"
        assert 0.05 < link.measured / link.bandwidth < 1


def test_generations_get_faster() -> None:
    for family, count in (("PCIe", 5), ("NVLink", 6), ("InfiniBand", 10)):
        rates = [link.bandwidth for link in catalog.links() if link.family == family]
        assert len(rates) == count and all(slow < fast for slow, fast in pairwise(rates))


# --- Units and directions ---


def test_bidirectional_is_twice_one_way() -> None:
    for entry in ALL:
        for name, fact in entry.facts.items():
            value: Any = getattr(entry, name)
            if isinstance(value, Bandwidth):
                number, unit, direction = fact.printed.split(" ", 2)
                scale = {"GB/s": 1e9, "TB/s": 1e12, "Gb/s": 1e9 / 8, "Tb/s": 1e12 / 8}[unit]
                read = {"per direction": value.one_way, "bidirectional": value.both_ways}[direction]
                assert read == pytest.approx(float(number) * scale)


def test_gigabytes_and_gibibytes_are_kept_apart() -> None:
    assert catalog.gpu("TPU v4").memory_bytes == 32 * GiB
    assert catalog.gpu("TPU7x").memory_bytes / GB == pytest.approx(206.2, abs=0.05)
    assert catalog.gpu("H100 SXM").memory_bytes == 80 * GB


# --- Systems and runs ---


@pytest.mark.parametrize("system", catalog.systems(), ids=lambda system: system.name)
def test_servers_times_accelerators_is_the_system(system: System) -> None:
    if system.accelerators and system.servers and system.per_server and system.name != "DeepSeek Fire-Flyer 2":
        assert system.servers * system.per_server == system.accelerators
    if system.name == "DGX SuperPOD H100":
        assert system.accelerators == 1016  # one of 128 places is the manager's


def test_mean_times_between_failures_follow_from_what_is_published() -> None:
    for name, hours in named("job_mtbf "):
        mtbf = catalog.run(name).job_mtbf_s
        assert mtbf is not None and mtbf / hour == pytest.approx(hours, rel=1e-3)
    for name, days in named("gpu_mtbf "):
        mtbf = catalog.run(name).per_accelerator_mtbf_s
        assert mtbf is not None and mtbf / day == pytest.approx(days, rel=1.2e-3)
    assert len(named("job_mtbf ")) == 17 and len(named("gpu_mtbf ")) == 19
    assert catalog.run("Delta").job_mtbf_s is None and catalog.run("Delta").per_accelerator_mtbf_s is None


def test_titans_mean_times_are_years_over_deaths() -> None:
    for batch, gpu_years in (("first", 75_694), ("second", 25_127)):
        run = catalog.run(f"Titan, {batch} batch")
        assert run.accelerator_mtbf_s is not None and run.failures is not None
        assert run.accelerator_mtbf_s == pytest.approx(gpu_years * 365.25 * day / run.failures, rel=5e-4)


# --- Asking ---


def test_case_and_punctuation_do_not_matter() -> None:
    assert catalog.gpu("h100-sxm") is catalog.gpu("H100 SXM")
    assert catalog.link("pcie 5.0 X16") is catalog.link("PCIe 5.0 x16")


@pytest.mark.parametrize(
    ("ask", "name", "near"),
    [
        (catalog.gpu, "H100", "H100 SXM, H100 PCIe"),
        (catalog.gpu, "TPU", "TPU v4, TPU v5e"),
        (catalog.gpu, "MI300", "MI300X"),
        (catalog.link, "NVLnk 4", "NVLink 4"),
        (catalog.switch, "QM9790", "QM9700"),
        (catalog.nic, "CX-7", "ConnectX-7"),
        (catalog.system, "Meta", "Meta RoCE 24K, Meta InfiniBand 24K"),
        (catalog.run, "Llama 3", "Llama 3 405B"),
        (catalog.gpu, "", "P100 SXM2"),
    ],
)
def test_an_unknown_name_suggests_near_ones(ask: Any, name: str, near: str) -> None:
    with pytest.raises(
        LookupError, match=rf"named {name!r}: (near are|there are) .*{re.escape(near)}.*; dthw\.catalog\."
    ):
        ask(name)


def test_a_field_that_is_not_given_has_no_source() -> None:
    with pytest.raises(LookupError, match="P100 SXM2 gives no 'bf16_flops'; it gives vendor"):
        catalog.gpu("P100 SXM2").source_of("bf16_flops")


def test_entries_are_values() -> None:
    h100 = catalog.gpu("H100 SXM")
    assert hash(h100) == hash(catalog.gpu("H100 SXM")) and h100 != catalog.gpu("H200 SXM")
    with pytest.raises(FrozenInstanceError):
        h100.domain = 9


GOOD = {"name": "X", "vendor": "V", "network": "N", "bandwidth": "400 Gb/s per direction", "source": "mle-network"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bandwidth": "400 Gb/s"}, "does not say its direction"),
        ({"bandwith": "1"}, r"unknown fields \['bandwith'\]"),
        ({"status": "guess"}, "'guess': expected one of spec"),
        ({"source": "nowhere"}, "nowhere"),
        ({"about": {"speed": {"note": "x"}}}, "which are no fields"),
    ],
)
def test_a_data_file_with_a_mistake_is_refused(change: dict[str, Any], says: str) -> None:
    assert load.build(NIC, GOOD, date(2026, 12, 1)).name == "X"
    with pytest.raises((ValueError, KeyError), match=says):
        load.build(NIC, {**GOOD, **change}, date(2026, 12, 1))
    with pytest.raises(ValueError, match=r"missing fields \['vendor'\]"):
        load.build(NIC, {key: value for key, value in GOOD.items() if key != "vendor"}, date(2026, 12, 1))


def test_the_package_loads_without_its_catalog() -> None:
    code = "import sys, dthw; assert 'dthw.catalog' not in sys.modules; dthw.catalog.gpu('H100 SXM'); dthw.units.GB"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "src")})
