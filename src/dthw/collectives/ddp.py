"""A communication hook that lets DistributedDataParallel reduce its gradients through a schedule."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]

from dthw.collectives.execute import Work
from dthw.collectives.run import Algorithm, all_reduce

Hook = Callable[[dist.ProcessGroup | None, GradBucket], torch.futures.Future[torch.Tensor]]


def ddp_hook(algorithm: Algorithm = "auto") -> Hook:
    """A hook for ``model.register_comm_hook(group, dthw.ddp_hook("ring"))`` on a DistributedDataParallel model.

    Gradients are divided by the number of ranks and then summed, as DDP does by itself, bucket by bucket while the
    backward pass goes on. The first argument of ``register_comm_hook`` is the process group, None for the default one.

    Cost: one all-reduce a bucket (25 MB unless DDP's ``bucket_cap_mb`` says otherwise). Errors: as `dthw.all_reduce`;
    they are raised from ``backward()``.

    Examples
    --------
    ::

        model = DistributedDataParallel(Net())
        model.register_comm_hook(None, dthw.ddp_hook("halving_doubling"))
    """

    def hook(group: dist.ProcessGroup | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradients = bucket.buffer()
        gradients.div_(dist.get_world_size(group))
        work = all_reduce(gradients, group=group, async_op=True, algorithm=algorithm)
        assert isinstance(work, Work)
        return work.get_future()

    return hook
