"""Collective operations as data: built, verified, priced and run.

``algorithms`` and ``primitives`` build a `schedule.Schedule` from ``patterns``; ``verify`` proves it, ``cost`` prices
it message by message, ``formulas`` in closed form; ``run`` carries it out over ``torch.distributed``.
"""
