"""Quantities keep their unit, bandwidths their direction, and the usual slips are errors."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dthw import units
from dthw.units import GB, KB, MB, Bandwidth, GiB, KiB, format_bytes, format_seconds, parse_size

amounts = st.floats(1e-3, 1e18)
rates = st.floats(0, 1e18)
bandwidths = rates.map(Bandwidth.per_direction)

# --- Sizes ---


def test_a_binary_unit_is_larger_than_the_decimal_one_by_what_slips_cost() -> None:
    assert KiB / KB == 1.024
    assert GiB / GB == pytest.approx(1.0737, abs=1e-4)
    assert units.TiB / units.TB == pytest.approx(1.0995, abs=1e-4)


def test_eight_bits_are_a_byte() -> None:
    assert 400 * units.Gbit == 50 * GB
    assert 8 * units.Kbit == KB and 8 * units.Mbit == MB and 8 * units.Tbit == units.TB


@pytest.mark.parametrize("name", units.SIZES)
@given(n=st.integers(0, 10**6))
def test_a_size_is_read_in_each_unit(name: str, n: int) -> None:
    assert parse_size(f"{n} {name}") == parse_size(f"{n}{name}") == parse_size(f"{n:,} {name}") == n * units.SIZES[name]


@given(amounts, st.booleans())
def test_a_printed_size_reads_back(size: float, binary: bool) -> None:
    assert parse_size(format_bytes(size, 15, binary=binary)) == pytest.approx(size, rel=1e-13)
    assert parse_size(format_bytes(size, binary=binary)) == pytest.approx(size, rel=5.1e-4)


@pytest.mark.parametrize("text", ["10 Gb", "10 gb", "10 G", "10 g", "10 gib", "10 GIB", "10 Gi", "3 mb", "3 M", "5 Kb"])
def test_a_size_that_may_be_bits_or_either_kind_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"ambiguous: write .B \(10.*bytes\), .iB \(2.*bytes\) or .bit"):
        parse_size(text)


@pytest.mark.parametrize("text", ["10", "ten GB", "", "10 furlongs", "GB", "10 GB/s", "1 2 GB"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size|no unit|the unit 'furlongs'"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "decimal", "binary"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (1000, "1 KB", "1000 B"),
        (1024, "1.024 KB", "1 KiB"),
        (999_999, "1 MB", "976.6 KiB"),
        (80 * GB, "80 GB", "74.51 GiB"),
        (32 * GiB, "34.36 GB", "32 GiB"),
        (-25 * MB, "-25 MB", "-23.84 MiB"),
    ],
)
def test_sizes_print_as_people_write_them(size: float, decimal: str, binary: str) -> None:
    assert (format_bytes(size), format_bytes(size, binary=True)) == (decimal, binary)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (1.3e-7, "0.13 us"), (5e-6, "5 us"), (0.0123, "12.3 ms"), (59.99999, "1 min"), (5400, "1.5 h"),
     (54 * units.day, "54 days"), (math.inf, "inf s")],
)  # fmt: skip
def test_times_print_in_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


# --- Bandwidths ---


@given(rates)
def test_a_bandwidth_is_the_same_however_its_direction_was_named(rate: float) -> None:
    one = Bandwidth.per_direction(rate)
    both = Bandwidth.bidirectional(2 * rate)
    assert one == both and hash(one) == hash(both)
    assert one.one_way == rate and both.both_ways == 2 * rate


@given(bandwidths)
def test_a_bandwidth_survives_being_written_copied_and_sent(bandwidth: Bandwidth) -> None:
    assert eval(repr(bandwidth), {"Bandwidth": Bandwidth, "GB": GB}) == bandwidth
    assert pickle.loads(pickle.dumps(bandwidth)) == copy.deepcopy(bandwidth) == bandwidth
    assert Bandwidth.parse(str(bandwidth)).one_way == pytest.approx(bandwidth.one_way, rel=1e-5)


@given(bandwidths, bandwidths)
def test_order_sum_and_ratio_are_those_of_one_direction(a: Bandwidth, b: Bandwidth) -> None:
    x, y = a.one_way, b.one_way
    assert (a < b, a <= b, a > b, a >= b, a == b) == (x < y, x <= y, x > y, x >= y, x == y)
    assert (a + b).one_way == x + y
    if y > 1e-200:
        assert a / b == x / y == a.both_ways / b.both_ways


@given(amounts, st.floats(1, 1e15))
def test_bytes_over_a_bandwidth_are_seconds_and_back(size: float, rate: float) -> None:
    link = Bandwidth.per_direction(rate)
    assert size / link == size / rate
    assert link.bytes_in(size / link) == pytest.approx(size)
    assert size / (link * 2) == pytest.approx(size / link / 2)
    assert size / (2 * link) == size / (link * 2) == size / (link + link)


def test_arrays_of_bytes_give_arrays_of_seconds() -> None:
    link = Bandwidth.per_direction(50 * GB)
    times = np.array([1e9, 2e9]) / link
    assert times.dtype == float and times.tolist() == [0.02, 0.04]
    assert np.float64(1e9) / link == np.int64(10**9) / link == 0.02
    assert link * np.float32(2) == Bandwidth.per_direction(100 * GB)


@pytest.mark.parametrize(
    ("text", "one_way"),
    [
        ("450 GB/s per direction", 450e9),
        ("900 GB/s bidirectional", 450e9),
        ("1.8TB/s both ways", 900e9),
        ("400 Gb/s per direction", 50e9),
        ("400Gbps unidirectional", 50e9),
        ("3,200 Gbit/s each way", 400e9),
        ("800 GiB/s bidirectional", 400 * GiB),
        ("64 GBps each way", 64e9),
    ],
)
def test_rates_are_read_with_their_direction(text: str, one_way: float) -> None:
    assert Bandwidth.parse(text).one_way == one_way


def test_a_direction_may_come_from_beside_the_text_but_only_once() -> None:
    assert Bandwidth.parse("900 GB/s", direction="bidirectional") == Bandwidth.parse("450 GB/s", "per direction")
    assert Bandwidth.parse("900 GB/s bidirectional", direction="bidirectional").one_way == 450 * GB
    with pytest.raises(ValueError, match="contradicts direction='per direction'"):
        Bandwidth.parse("900 GB/s bidirectional", direction="per direction")


def test_gigabits_and_gigabytes_differ_by_eight() -> None:
    bits, as_bytes = (Bandwidth.parse(f"400 {unit}/s per direction") for unit in ("Gb", "GB"))
    assert as_bytes / bits == 8


# --- Slips that are errors ---


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("900 GB/s", "does not say its direction"),
        ("400 Gb/s", "does not say its direction"),
        ("900 GB/s duplex", "ends in 'duplex': expected one of per direction"),  # full duplex: 900 each way, or in all?
        ("32 GT/s per direction", "not a rate"),
        ("900 gb/s per direction", "not a rate"),
        ("900 GB per direction", "not a rate"),
        ("-3 GB/s per direction", "finite number, 0 or more"),
    ],
)
def test_text_that_leaves_something_open_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Bandwidth.parse(text)


def test_a_direction_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="expected 'per direction' or 'bidirectional'"):
        Bandwidth.parse("900 GB/s", direction="duplex")


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_bandwidth_is_finite_and_not_negative(value: float) -> None:
    with pytest.raises(ValueError, match="finite number, 0 or more"):
        Bandwidth.per_direction(value)


def test_a_bandwidth_without_a_direction_cannot_be_built() -> None:
    with pytest.raises(TypeError, match=r"Bandwidth\.per_direction\(450 \* GB\) or"):
        Bandwidth(450e9)
    with pytest.raises(TypeError, match="says its direction already"):
        Bandwidth.bidirectional(Bandwidth.per_direction(1.0))
    with pytest.raises(TypeError, match=r"read by Bandwidth\.parse"):
        Bandwidth.per_direction("450 GB/s")


@pytest.mark.parametrize("divisor", [2, 0.5, 8.0, "2", None, np.float64(2)])
def test_dividing_a_bandwidth_by_a_number_names_both_readings(divisor: object) -> None:
    with pytest.raises(TypeError, match=r"two things: part of the bandwidth.*; one direction of a printed sum"):
        Bandwidth.bidirectional(900 * GB) / divisor


def test_a_plain_number_never_mixes_with_a_bandwidth() -> None:
    link = Bandwidth.per_direction(50 * GB)
    wrong = [
        lambda: link + 1e9, lambda: 1e9 + link, lambda: link < 1e9, lambda: link <= 1e9, lambda: link > 1e9,
        lambda: link >= 1e9, lambda: sum([link, link]),
    ]  # fmt: skip
    for mix in wrong:
        with pytest.raises(TypeError, match="does not say its direction"):
            mix()
    assert link != 50e9
    assert sum([link, link], start=Bandwidth.per_direction(0)) == link * 2


def test_bandwidths_do_not_multiply_and_do_not_change() -> None:
    link = Bandwidth.per_direction(50 * GB)
    with pytest.raises(TypeError, match="multiply by a plain number"):
        link * link
    with pytest.raises(TypeError, match="unsupported"):
        "1 GB" / link
    with pytest.raises(AttributeError, match="does not change"):
        link._one_way = 1.0
    with pytest.raises(AttributeError, match="does not change"):
        del link._one_way


def test_a_table_that_mixes_directions_is_off_by_two_and_bandwidths_are_not() -> None:
    """NVLink 4 over PCIe 5 as printed is 14; in one direction it is 7."""
    printed = 900 / 63.015
    honest = Bandwidth.bidirectional(900 * GB) / Bandwidth.per_direction(63.015 * GB)
    assert printed == pytest.approx(2 * honest)
    assert honest == pytest.approx(7.141, abs=5e-4)
