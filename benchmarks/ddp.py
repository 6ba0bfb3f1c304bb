"""Step time of DistributedDataParallel: torch's own reduction beside `dthw.ddp_hook`, alternating in one run.

The model has several buckets, so that reduction overlaps the backward pass. Run: nox -s bench -- ddp
"""

from statistics import median

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dthw
from dthw.measure.timing import in_turn

ALGORITHMS = ("auto", "ring", "halving_doubling")


def steps(width: int, depth: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each training step, by who reduces; runs inside a rank."""

    def trainer(algorithm: str | None) -> nn.Module:
        torch.manual_seed(0)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
        model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=4)
        if algorithm is not None:
            model.register_comm_hook(None, dthw.ddp_hook(algorithm))
        return model

    models = {"torch": trainer(None)} | {name: trainer(name) for name in ALGORITHMS}
    batch = torch.randn(32, width)

    def step(model: nn.Module) -> None:
        model.zero_grad()
        model(batch).square().mean().backward()

    return in_turn({name: lambda m=model: step(m) for name, model in models.items()}, repeats)


def main() -> None:
    print(
        f"{'ranks':>5}{'MB of gradients':>17}{'torch, ms':>11}"
        + "".join(f"{f'{a}: ms, ratio':>26}" for a in ALGORITHMS)
    )
    for ranks in (2, 4, 8):
        for width, depth in ((128, 8), (1024, 4), (1024, 16)):
            runs = [dthw.launch(steps, ranks, width, depth, 12, timeout=600)[0] for _ in range(3)]
            ms = {name: median(median(run[name]) for run in runs) * 1e3 for name in runs[0]}
            ratio = {name: median(median(run["torch"]) / median(run[name]) for run in runs) for name in ALGORITHMS}
            size = 4 * depth * width * (width + 1) / 1e6
            cells = "".join(f"{ms[a]:20.2f}{ratio[a]:6.2f}" for a in ALGORITHMS)
            print(f"{ranks:5}{size:17.1f}{ms['torch']:11.2f}{cells}")
    print("ratio: torch's step time over the hook's, larger is better for the hook; median of three runs")


if __name__ == "__main__":
    main()
