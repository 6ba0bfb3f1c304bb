"""Which algorithm "auto" means: the policy, apart from the mechanism."""

from dthw.collectives import formulas
from dthw.collectives.cost import Port

CANDIDATES = ("recursive_doubling", "halving_doubling", "ring")
"""Considered by "auto", in order of preference where two cost the same."""

LOCAL = Port(alpha_s=100e-6, beta_s=1 / 1e9, gamma_s=1 / 5e9)


def choose(ranks: int, nbytes: int, port: Port | None = None) -> str:
    """The candidate whose closed form is smallest for this many ranks and bytes."""
    machine = port or LOCAL
    return min(
        CANDIDATES,
        key=lambda name: formulas.ALL_REDUCE[name](ranks, nbytes).seconds(machine.alpha_s, machine.beta_s, machine.gamma_s),
    )
