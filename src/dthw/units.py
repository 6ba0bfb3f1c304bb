"""Bytes, seconds, and bandwidths that say their direction.

Quantities are plain numbers in bytes and seconds: ``25 * MB``, ``10 * GiB``, ``5 * us``. A bandwidth is not a plain
number, because "900 GB/s" on one data sheet and "64 GB/s" on the next may count different things: NVLink is printed
with both directions added up, PCIe, InfiniBand and Ethernet with one. `Bandwidth` is built only by saying which, and
compares like with like from then on.

>>> nvlink, pcie = Bandwidth.bidirectional(900 * GB), Bandwidth.per_direction(64 * GB)
>>> round(nvlink / pcie, 1)
7.0
>>> format_seconds(10 * GiB / nvlink)
'23.86 ms'

Standard library alone. Decimal prefixes are the SI's, binary ones those of IEC 80000-13.
"""

import math
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal, NoReturn, overload

KB, MB, GB, TB, PB = 1e3, 1e6, 1e9, 1e12, 1e15
KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40
Kbit, Mbit, Gbit, Tbit = KB / 8, MB / 8, GB / 8, TB / 8
ns, us, ms, minute, hour, day = 1e-9, 1e-6, 1e-3, 60.0, 3600.0, 86400.0

Direction = Literal["per direction", "bidirectional"]

DECIMAL: Mapping[str, float] = {"B": 1.0, "KB": KB, "MB": MB, "GB": GB, "TB": TB, "PB": PB}
BINARY: Mapping[str, float] = {"B": 1.0, "KiB": KiB, "MiB": MiB, "GiB": GiB, "TiB": TiB}
BITS: Mapping[str, float] = {"bit": 1 / 8, "Kbit": Kbit, "Mbit": Mbit, "Gbit": Gbit, "Tbit": Tbit}
SIZES: Mapping[str, float] = {**DECIMAL, **BINARY, **BITS, "kB": KB, "kbit": Kbit}
RATE_BITS: Mapping[str, float] = {"b": 1 / 8, "kb": Kbit, "Kb": Kbit, "Mb": Mbit, "Gb": Gbit, "Tb": Tbit}
SECONDS: Mapping[str, float] = {"us": us, "ms": ms, "s": 1.0, "min": minute, "h": hour, "days": day}

DIRECTIONS: Mapping[str, Direction] = {
    "per direction": "per direction",
    "each way": "per direction",
    "unidirectional": "per direction",
    "bidirectional": "bidirectional",
    "both ways": "bidirectional",
}
NUMBER = r"\s*([+-]?\d[\d,]*(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*"


class Bandwidth:
    """Bytes per second of something that carries bytes both ways at once; its direction is named where it is built.

    Build one with `per_direction`, `bidirectional` or `parse`; read it with `one_way` or `both_ways`, in bytes per
    second. Equal values are equal however they were written, hash alike and are ordered. Nothing changes one.

    ================== ============================================================================================
    bytes / b          seconds that the bytes take in one direction (numpy arrays of bytes give arrays of seconds)
    b * 0.9, 8 * b     the same kind of bandwidth, scaled: an efficiency, a number of links
    b + c              links side by side
    b / c              how many times faster, each in one direction
    b / 2              refused, always: half the lanes, or one direction out of two?
    b + 5e9, b < 5e9   refused: a plain number does not say its direction
    ================== ============================================================================================

    >>> Bandwidth.per_direction(450 * GB) == Bandwidth.bidirectional(900 * GB)
    True
    >>> Bandwidth.per_direction(25 * GB) * 18
    Bandwidth.per_direction(450.0 * GB)
    >>> Bandwidth.per_direction(450 * GB) / 2
    Traceback (most recent call last):
    TypeError: 450 GB/s per direction / 2 could mean two things: part of the bandwidth is bandwidth * (1 / 2); ...
    """

    __slots__ = ("_one_way",)
    _one_way: float
    __array_ufunc__ = None  # numpy hands its operand over whole, instead of dividing entry by entry

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError(
            "a Bandwidth is built by naming its direction: Bandwidth.per_direction(450 * GB) or, where a vendor adds "
            "both directions up, Bandwidth.bidirectional(900 * GB)"
        )

    @classmethod
    def per_direction(cls, bytes_per_second: float) -> "Bandwidth":
        """What one direction carries, in bytes per second; ValueError unless it is finite and 0 or more.

        >>> print(Bandwidth.per_direction(400 * Gbit))
        50 GB/s per direction
        """
        _need_number(bytes_per_second, "bytes per second")
        if not (math.isfinite(bytes_per_second) and bytes_per_second >= 0):
            raise ValueError(f"a bandwidth of {bytes_per_second} bytes per second: need a finite number, 0 or more")
        made = object.__new__(cls)
        object.__setattr__(made, "_one_way", float(bytes_per_second))
        return made

    @classmethod
    def bidirectional(cls, bytes_per_second: float) -> "Bandwidth":
        """The sum of both directions, as NVLink and xGMI are printed; ValueError as for `per_direction`.

        >>> print(Bandwidth.bidirectional(900 * GB))
        450 GB/s per direction
        """
        _need_number(bytes_per_second, "bytes per second")
        return cls.per_direction(bytes_per_second / 2)

    @classmethod
    def parse(cls, text: str, direction: Direction | None = None) -> "Bandwidth":
        """Read "450 GB/s per direction", "400 Gb/s each way", "1.8 TB/s bidirectional".

        ``direction`` says it for text that does not, such as a column of a table. ValueError where neither does, where
        they disagree, or where the unit is not one of bytes or bits a second ("GT/s" is not: encoding comes off it).

        >>> Bandwidth.parse("400 Gb/s", direction="per direction").one_way / GB
        50.0
        >>> Bandwidth.parse("900 GB/s")
        Traceback (most recent call last):
        ValueError: '900 GB/s' does not say its direction: add 'per direction' or 'bidirectional', or pass direction=
        """
        found = re.fullmatch(NUMBER + r"([A-Za-z]+?)(?:/s|ps)\b\s*(.*?)\s*", text)
        rates = {**SIZES, **RATE_BITS}
        if not found or found[2] not in rates:
            raise ValueError(f"{text!r} is not a rate: write a number, then one of GB/s, GiB/s, Gb/s or their like")
        said = DIRECTIONS.get(found[3])
        if found[3] and not said:
            raise ValueError(f"{text!r} ends in {found[3]!r}: expected one of {', '.join(DIRECTIONS)}")
        if direction is not None and direction not in DIRECTIONS.values():
            raise ValueError(f"direction is {direction!r}: expected 'per direction' or 'bidirectional'")
        if said and direction and said != direction:
            raise ValueError(f"{text!r} contradicts direction={direction!r}: give the direction once")
        rate = _number(found[1]) * rates[found[2]]
        match said or direction:
            case "per direction":
                return cls.per_direction(rate)
            case "bidirectional":
                return cls.bidirectional(rate)
            case _:
                raise ValueError(
                    f"{text!r} does not say its direction: add 'per direction' or 'bidirectional', or pass direction="
                )

    @property
    def one_way(self) -> float:
        """Bytes per second in one direction."""
        return self._one_way

    @property
    def both_ways(self) -> float:
        """Bytes per second of both directions added up, as many data sheets print it."""
        return 2 * self._one_way

    def bytes_in(self, seconds: float) -> float:
        """Bytes that one direction carries in that time.

        >>> format_bytes(Bandwidth.per_direction(50 * GB).bytes_in(2 * ms))
        '100 MB'
        """
        return self._one_way * seconds

    @overload
    def __rtruediv__(self, size: float) -> float: ...
    @overload
    def __rtruediv__(self, size: Any) -> Any: ...
    def __rtruediv__(self, size: Any) -> Any:
        if not (isinstance(size, Real) or hasattr(size, "__array__")):
            return NotImplemented
        return size / self._one_way

    def __truediv__(self, other: "Bandwidth") -> float:
        if isinstance(other, Bandwidth):
            return self._one_way / other._one_way
        raise TypeError(
            f"{self} / {other} could mean two things: part of the bandwidth is bandwidth * (1 / {other}); one "
            "direction of a printed sum is Bandwidth.bidirectional(printed).one_way"
        )

    def __mul__(self, factor: float) -> "Bandwidth":
        if not isinstance(factor, Real):
            self._refuse("*", factor, "multiply by a plain number, such as links or an efficiency")
        return Bandwidth.per_direction(self._one_way * float(factor))

    __rmul__ = __mul__

    def __add__(self, other: "Bandwidth") -> "Bandwidth":
        if not isinstance(other, Bandwidth):
            self._refuse("+", other)
        return Bandwidth.per_direction(self._one_way + other._one_way)

    __radd__ = __add__

    def __eq__(self, other: object) -> bool:
        return self._one_way == other._one_way if isinstance(other, Bandwidth) else NotImplemented

    def __hash__(self) -> int:
        return hash((Bandwidth, self._one_way))

    def __lt__(self, other: "Bandwidth") -> bool:
        return self._one_way < self._other(other, "<")

    def __le__(self, other: "Bandwidth") -> bool:
        return self._one_way <= self._other(other, "<=")

    def __gt__(self, other: "Bandwidth") -> bool:
        return self._one_way > self._other(other, ">")

    def __ge__(self, other: "Bandwidth") -> bool:
        return self._one_way >= self._other(other, ">=")

    def _other(self, other: "Bandwidth", sign: str) -> float:
        if not isinstance(other, Bandwidth):
            self._refuse(sign, other)
        return other._one_way

    def _refuse(self, sign: str, other: object, instead: str = "") -> NoReturn:
        instead = instead or (
            "a plain number does not say its direction; use Bandwidth.per_direction(...) or .bidirectional(...), also "
            "as the start of a sum: sum(links, start=Bandwidth.per_direction(0))"
        )
        raise TypeError(f"{self} {sign} {other!r}: {instead}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Bandwidth does not change ({name} = {value!r}): build another one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Bandwidth does not change (del {name})")

    def __reduce__(self) -> tuple[Any, tuple[float]]:
        return Bandwidth.per_direction, (self._one_way,)

    def __repr__(self) -> str:
        number = self._one_way / GB
        exact = f"{number!r} * GB" if number * GB == self._one_way else repr(self._one_way)
        return f"Bandwidth.per_direction({exact})"

    def __str__(self) -> str:
        return f"{_scaled(self._one_way, DECIMAL, 6)}/s per direction"


def parse_size(text: str) -> float:
    """Bytes of "10 GiB", "25 MB", "512 B" or "8 Gbit".

    ValueError where the unit is missing, misspelt, or ambiguous: "10 GB" and "10 GiB" differ by 7 %, and "10 Gb" reads
    like a slip for one of them, so that bits have to be spelt ``bit``.

    >>> parse_size("10 GiB") / GB
    10.73741824
    >>> parse_size("10 Gb")
    Traceback (most recent call last):
    ValueError: '10 Gb' is ambiguous: write GB (10^9 bytes), GiB (2^30 bytes) or Gbit (10^9 bits)
    """
    found = re.fullmatch(NUMBER + r"([A-Za-z]*)\s*", text)
    if not found:
        raise ValueError(f"{text!r} is not a size: write a number and a unit, such as '10 GiB' or '25 MB'")
    unit = found[2]
    if unit in SIZES:
        return _number(found[1]) * SIZES[unit]
    prefix = unit[:1].upper()
    if prefix and prefix in "KMGT" and unit.lower() in {prefix.lower() + end for end in ("", "b", "ib", "i")}:
        power = " KMGT".index(prefix)
        choices = f"{prefix}B (10^{3 * power} bytes), {prefix}iB (2^{10 * power} bytes) or {prefix}bit"
        raise ValueError(f"{text!r} is ambiguous: write {choices} (10^{3 * power} bits)")
    raise ValueError(f"{text!r} has {f'the unit {unit!r}' if unit else 'no unit'}: expected one of {', '.join(SIZES)}")


def format_bytes(size: float, digits: int = 4, *, binary: bool = False) -> str:
    """A number of bytes with the unit that suits it, to so many significant digits.

    >>> format_bytes(10 * GiB), format_bytes(10 * GiB, binary=True)
    ('10.74 GB', '10 GiB')
    """
    return _scaled(size, BINARY if binary else DECIMAL, digits)


def format_seconds(seconds: float, digits: int = 4) -> str:
    """A time with the unit that suits it, from "us" to "days", to so many significant digits.

    >>> format_seconds(11133), format_seconds(3e-6)
    ('3.092 h', '3 us')
    """
    return _scaled(seconds, SECONDS, digits)


def _scaled(value: float, units: Mapping[str, float], digits: int) -> str:
    """The value in the largest unit that leaves at least 1 after rounding."""
    if not value or not math.isfinite(value):
        return f"{value:g} {next(name for name, unit in units.items() if unit == 1)}"
    chosen = next(iter(units))
    for name, unit in units.items():
        if abs(float(f"{value / unit:.{digits}g}")) >= 1:
            chosen = name
    number = float(f"{value / units[chosen]:.{digits}g}")
    return f"{number:.{max(digits, 15)}g} {chosen}"


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _need_number(value: object, what: str) -> None:
    if isinstance(value, Bandwidth):
        raise TypeError(f"{value} says its direction already: expected a plain number of {what}")
    if not isinstance(value, Real):
        raise TypeError(f"{value!r} is not a number of {what}; text is read by Bandwidth.parse")
