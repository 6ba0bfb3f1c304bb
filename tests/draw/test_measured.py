"""The fit finds the constants that made the times, and the figure shows counted beside predicted."""

from typing import Any

import pytest
from matplotlib.text import Text

from dthw import draw
from dthw.collectives.cost import Port
from dthw.collectives.formulas import ALL_REDUCE, crossover
from dthw.draw.measured import by_cell, predicted
from dthw.draw.style import in_bytes
from dthw.measure.fit import Fit, alpha_beta, by_ranks

NAMES = ("ring", "recursive_doubling", "halving_doubling", "double_binary_tree")
SIZES = (1024, 32768, 2**20, 2**25)


def made(alpha_s: float, beta_s: float, ranks: tuple[int, ...] = (2, 4, 8)) -> list[dict[str, Any]]:
    """Records of a machine that obeys the model to the letter, and torch's own beside them."""
    records = []
    for p in ranks:
        for n in SIZES:
            for name in NAMES:
                seconds = ALL_REDUCE[name](p, n).seconds(alpha_s, beta_s)
                sent, messages = predicted(name, p, n)
                records.append(
                    {"algorithm": name, "ranks": p, "bytes": n, "seconds": [0.9 * seconds, seconds, 2 * seconds],
                     "bytes_sent": sent, "messages_sent": messages}
                )  # fmt: skip
            records.append(
                {"algorithm": "dist.all_reduce", "ranks": p, "bytes": n, "seconds": [1e-3] * 3, "bytes_sent": None,
                 "messages_sent": None}
            )  # fmt: skip
    return records


def test_the_fit_finds_the_constants_behind_the_times() -> None:
    for p, found in by_ranks(made(87e-6, 1 / 1.3e9)).items():
        assert p in (2, 4, 8)
        assert found == pytest.approx(Fit(87e-6, 1 / 1.3e9, 0, 0), abs=1e-9)


def test_runs_of_one_cell_are_taken_together() -> None:
    records = made(1e-4, 1e-9, ranks=(2,))
    slower = [{**record, "seconds": [2 * s for s in record["seconds"]]} for record in records]
    twice = records + slower  # of a cell 0.9, 1, 2 and 1.8, 2, 4 times the model's seconds
    assert len(by_cell(twice)) == len(records)
    assert all(len(seconds) == 6 for seconds, _, _ in by_cell(twice).values())
    assert by_ranks(twice)[2].alpha_s == pytest.approx(1.9e-4)


def test_misses_are_relative_and_constants_never_negative() -> None:
    fit = alpha_beta([(1, 0, 1.0), (1, 0, 2.0)])
    assert fit == pytest.approx(Fit(1.2, 0, 0.3, 0.4))  # least (a - 1)² + (a/2 - 1)²
    falling = alpha_beta([(1, 1e3, 2e-3), (1, 1e6, 1e-3)])  # larger and yet faster: no byte is charged
    assert falling.beta_s == 0
    assert falling.alpha_s > 0
    with pytest.raises(ValueError, match="got 1 rows"):
        alpha_beta([(1, 1, 1.0)])
    with pytest.raises(ValueError, match="times above 0"):
        alpha_beta([(1, 1, 1.0), (1, 2, 0.0)])


@pytest.mark.parametrize("theme", draw.THEMES, ids=lambda theme: theme.name)
def test_the_figure_says_what_was_fitted_and_where_ranks_outnumber_cores(theme: draw.Theme) -> None:
    records = made(87e-6, 1 / 1.3e9)
    figure = draw.measured(records, by_ranks(records), cores=4, theme=theme)
    said = {text.get_text() for text in figure.findobj(Text)}
    assert said >= {
        "2 ranks",
        "4 ranks",
        "8 ranks on 4 cores",
        "α = 87 µs, β = 1/(1.3 GB/s)",
        "misses by 0%, at most 0%",
    }
    assert len(figure.axes) == 9
    assert len(draw.svg(figure)) < 150_000


def test_curves_mark_where_one_algorithm_overtakes_the_other() -> None:
    port = Port.of(5e-6, 50e9, 100e9)
    figure = draw.curves([8, 64], port)
    said = {text.get_text() for text in figure.findobj(Text)}
    for p in (8, 64):
        at = crossover("recursive_doubling", "ring", p, port.alpha_s, port.beta_s, port.gamma_s)
        assert in_bytes(at, 2) in said
    assert any("γ = 1/(100 GB/s)" in text for text in said)
    line = figure.axes[0].lines[0]
    n, seconds = line.get_data()
    form = ALL_REDUCE["parameter_server"](8, n[7])
    assert seconds[7] == pytest.approx(form.seconds(port.alpha_s, port.beta_s, port.gamma_s))


def test_the_hierarchy_shows_each_step_down() -> None:
    figure = draw.hierarchy([draw.Rung("here", "a bus", 900e9), draw.Rung("there", "a cable", 50e9)], theme=draw.DARK)
    said = {text.get_text() for text in figure.findobj(Text)}
    assert said >= {"here", "a cable", "900 GB/s", "50 GB/s", "↓ 18.0 times slower"}
