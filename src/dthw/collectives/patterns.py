"""Who talks to whom: communication patterns as index arithmetic, free of any data or transport.

Every function takes a number of ranks and returns integers or integer arrays indexed by rank.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def power_of_two_below(p: int) -> int:
    """The largest power of two that is at most ``p``.

    >>> [power_of_two_below(p) for p in (1, 2, 3, 7, 8, 9)]
    [1, 2, 2, 4, 8, 8]
    """
    return 1 << (p.bit_length() - 1)


def largest_divisor(p: int) -> int:
    """The largest divisor of ``p`` that is at most its square root: the short side of the squarest grid.

    >>> [largest_divisor(p) for p in (1, 6, 7, 12, 16, 1000)]
    [1, 2, 1, 3, 4, 25]
    """
    return next(d for d in range(int(p**0.5), 0, -1) if p % d == 0)


def grid(p: int, columns: int) -> tuple[Ints, Ints]:
    """Row and column of each rank in a row-major grid with ``columns`` columns.

    ::

        0 1 2      row    0 0 0 1 1 1
        3 4 5      column 0 1 2 0 1 2
    """
    row, column = np.divmod(np.arange(p), columns)
    return row, column


def heap_tree(p: int) -> tuple[Ints, Ints]:
    """Parent and depth of each rank in the binary tree numbered level by level.

    ::

              0          parent  -1 0 0 1 1 2
            /   \\        depth    0 1 1 2 2 2
           1     2
          / \\   /
         3   4 5

    The root's parent is -1. Every level but the last is full, so the depth is floor(log2 p).
    """
    ranks = np.arange(p)
    depth = np.frexp(ranks + 1)[1].astype(np.int64) - 1
    return np.where(ranks > 0, (ranks - 1) // 2, -1), depth


def inorder_tree(p: int) -> tuple[Ints, Ints]:
    """Parent and depth of each rank in the binary tree whose leaves are exactly the odd ranks.

    ::

        0                          parent  -1 2 4 2 0 6 4 6
         \\_____                    depth    0 3 2 3 1 3 2 3
               4
             /   \\
            2     6                p = 8; depth is ceil(log2 p)
           / \\   / \\
          1   3 5   7

    A rank's height is the position of its lowest set bit; its parent clears that bit and sets the next one,
    or only clears it where that would leave the range. This is the tree NCCL builds between nodes
    (``ncclGetBtree`` in its ``trees.cc``).
    """
    ranks = np.arange(p)
    bit = ranks & -ranks
    up = (ranks ^ bit) | (bit << 1)
    parent = np.where(up < p, up, ranks ^ bit)
    parent[0] = -1
    depth = np.zeros(p, dtype=np.int64)
    above = parent.copy()
    while (alive := above >= 0).any():
        depth += alive
        above = np.where(alive, parent[above], -1)
    return parent, depth


def twin_trees(p: int) -> list[tuple[Ints, Ints]]:
    """Two binary trees on the same ranks in which every rank is a leaf at least once (but for one rank when p is odd).

    The second tree is the first one mirrored (rank r plays p-1-r) when p is even, or shifted by one when p is odd:
    either way the odd and the even ranks change places, so the leaves of one tree do the inner work of the other.

    ::

        p = 4    0                  3
                  \\                /
                   2              1
                  / \\            / \\
                 1   3          2   0

    Returns [(parent, depth), (parent, depth)].
    """
    parent, depth = inorder_tree(p)
    ranks = np.arange(p)
    role = p - 1 - ranks if p % 2 == 0 else (ranks - 1) % p  # the part each rank plays in the second tree
    player = np.argsort(role)
    return [(parent, depth), (np.where(parent[role] >= 0, player[parent[role]], -1), depth[role])]


def binomial_rounds(p: int) -> list[Ints]:
    """Senders of each round of a binomial broadcast from rank 0; in round k rank v sends to v + 2**k.

    ::

        round 0   0-1              [0]
        round 1   0-2 1-3          [0, 1]
        round 2   0-4 1-5 2-6 3-7  [0, 1, 2, 3]      p = 8
    """
    return [np.arange(min(1 << k, p - (1 << k))) for k in range((p - 1).bit_length())]
