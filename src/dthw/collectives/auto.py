"""Which algorithm "auto" means: the policy, apart from the mechanism."""

from dthw.collectives import formulas
from dthw.collectives.cost import Port

CANDIDATES = ("recursive_doubling", "halving_doubling", "ring")
"""Considered by "auto", in order of preference where two cost the same.

Algorithms that win in the model by handling many messages in one round (one-shot, sharded servers) are left out: the
port model charges those a single α, real transports charge each message.
"""

LOCAL = Port(alpha_s=172e-6, beta_s=1 / 1.5e9, gamma_s=1 / 2.6e9)
"""Fitted by `dthw.measure.fit.port` to 4 gloo ranks on two cores (docs/assets/data/gloo.json; a test compares).

The choice depends on ratios alone: on a machine that is twice as fast in everything it is the same.
"""


def choose(ranks: int, nbytes: int, port: Port | None = None) -> str:
    """The candidate whose closed form is smallest for this many ranks and bytes.

    >>> [choose(8, nbytes) for nbytes in (1000, 1_000_000)], choose(6, 1_000_000)
    (['recursive_doubling', 'halving_doubling'], 'ring')
    """
    machine = port or LOCAL

    def seconds(name: str) -> float:
        return formulas.ALL_REDUCE[name](ranks, nbytes).seconds(machine.alpha_s, machine.beta_s, machine.gamma_s)

    return min(CANDIDATES, key=seconds)
