"""Colours that can be told apart and read, and numbers in words."""

import pytest

from dthw.collectives.formulas import ALL_REDUCE
from dthw.draw.style import LOOKS, THEMES, Theme, contrast, in_bandwidth, in_bytes, in_seconds, look

modes = pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)


@modes
def test_text_has_the_contrast_that_readers_need(theme: Theme) -> None:
    for colour in (theme.text, theme.muted, theme.add_text, theme.copy_text):
        assert contrast(colour, theme.ground) >= 4.5


@modes
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 16])
def test_numbers_can_be_read_on_cells_of_every_shade(theme: Theme, ranks: int) -> None:
    for held in range(1, ranks + 1):
        ground = theme.shade(held, ranks)
        assert contrast(theme.on(ground), ground) >= 4.5


@modes
def test_lines_frames_and_marks_stand_out(theme: Theme) -> None:
    for colour in (theme.add, theme.copy, *(look(name).colour(theme) for name in LOOKS)):
        assert contrast(colour, theme.ground) >= 3
    for frame in (theme.add, theme.copy):
        assert contrast(frame, theme.low) >= 2.5
        assert contrast(frame, theme.full) >= 2.5
    assert contrast(theme.high, theme.full) >= 3, "a finished cell is told from one that lacks a part"


def test_no_two_algorithms_look_alike_without_colour() -> None:
    assert set(LOOKS) >= set(ALL_REDUCE)
    assert len({one.marker for one in LOOKS.values()}) == len(LOOKS)
    assert len({(one.light, one.dash) for one in LOOKS.values()}) == len(LOOKS)
    with pytest.raises(ValueError, match="no algorithm is named 'rings'"):
        look("rings")


def test_quantities_are_written_with_units_a_reader_knows() -> None:
    assert [in_bytes(n) for n in (0, 1, 1023, 1024, 2.0**21, 2.5 * 2**30)] == [
        "0 B", "1 B", "1,023 B", "1 KiB", "2 MiB", "2.5 GiB",
    ]  # fmt: skip
    assert [in_seconds(s) for s in (0, 3e-9, 9.9996e-4, 0.0123, 44)] == ["0 ns", "3 ns", "1 ms", "12.3 ms", "44 s"]
    assert [in_bandwidth(b, 2) for b in (63.015e9, 3350e9, 450e6)] == ["63 GB/s", "3,400 GB/s", "450 MB/s"]
