"""What moves the weights of a model whose layers the ranks divide (`--shard full`).

Of a layer's weights, rank r holds rows and moves them (models/layer_shards.py): their gradients come summed out of the
backward pass, and moments are of these rows alone. The weights outside the layers are whole everywhere; their
gradients, moments and fp32 masters are divided as with `--shard states` (models/sharded_states.py). For the optimiser
both are plain tensors. Bytes a weight at R ranks: (4 + 4 + 8) / R in the layers, 2 + (4 + 4 + 8) / R outside of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from burnish.models.layer_shards import collected, held, is_divided, mesh_under, numbers_of, part_of, rows_of
from burnish.models.ranks import Ranks, exchanged
from burnish.models.sharded_states import ShardedStates, run_of


class ShardedWeights:
    """What this rank holds of one model's trained parameters.

    owned: that, as parameters of the optimiser
    outside: of the parameters outside the layers
    """

    def __init__(self, named: Mapping[str, nn.Parameter], ranks: Ranks) -> None:
        self.named, self.ranks = named, ranks
        self.layers = {name: p for name, p in named.items() if is_divided(p)}
        self.outside = ShardedStates({name: p for name, p in named.items() if name not in self.layers}, ranks)
        self.owned: dict[str, nn.Parameter] = {}

    @property
    def masters(self) -> bool:
        """Whether it holds fp32 masters of what is whole in bf16."""
        return self.outside.masters

    def begin(self) -> None:
        """Take what this rank holds where it is now: FSDP2 may have moved it."""
        self.outside.begin()
        for name, p in self.layers.items():
            own = held(p.detach())
            if name not in self.owned:
                self.owned[name] = nn.Parameter(own)
            elif self.owned[name].data_ptr() != own.data_ptr() or self.owned[name].dtype != own.dtype:
                self.owned[name].data = own
        self.owned.update(self.outside.owned)

    def keep_masters(self) -> None:
        """Hold what is outside the layers in bf16 from now on, and fp32 runs of it; layers are fp32 themselves."""
        self.outside.keep_masters()

    def adopt(self) -> None:
        """Something else than the optimiser has changed the weights: the masters follow."""
        self.outside.adopt()

    @property
    def copies(self) -> int:
        """How many groups of ranks hold all layers."""
        one = next(iter(self.layers.values()), None)
        return 1 if one is None else self.ranks.world // part_of(mesh_under(one))[1]

    @torch.no_grad()
    def finish(self) -> None:
        """End a backward pass: add its gradients to those of what this rank holds."""
        self.begin()
        for name, p in self.layers.items():
            grad, p.grad = p.grad, None
            if grad is None:
                continue
            own = self.owned[name]
            if own.grad is None:
                own.grad = held(grad)
            else:
                own.grad.add_(held(grad))
        for p in self.outside.named.values():
            grad, p.grad = p.grad, None
            if grad is not None:
                self.outside.deliver(p, grad)
        self.outside.finish()

    def forget(self) -> None:
        """Drop what an attempt at a backward pass has left."""
        self.outside.forget()
        for p in self.named.values():
            p.grad = None

    def publish(self) -> None:
        """Every rank gets what the others have moved outside the layers; layers are gathered when they compute."""
        self.outside.publish()

    def norm(self) -> Tensor:
        """The norm of the whole gradient: every rank has the sum of squares of what it holds, in the layers together
        with the other copies."""
        inside, outside = list[Tensor](), list[Tensor]()
        for name, own in self.owned.items():
            if own.grad is not None and own.numel():
                (inside if name in self.layers else outside).append(own.grad)
        norms = [torch.nn.utils.get_total_norm(grads) if grads else torch.zeros(()) for grads in (inside, outside)]
        kind, device = torch.promote_types(norms[0].dtype, norms[1].dtype), next(iter(self.named.values())).device
        squares = (norms[0].double().square() / self.copies + norms[1].double().square()).reshape(1).to(device)
        work = exchanged(partial(dist.all_reduce, squares, async_op=True), squares.is_cuda)
        if work is not None:
            work.wait()
        return squares[0].sqrt().to(kind)

    def own_part(self, name: str, whole: Tensor) -> Tensor:
        """What this rank holds of a whole parameter's state."""
        if name not in self.layers:
            return self.outside.own_part(name, whole)
        p = self.layers[name]
        if whole.ndim == 0:
            return whole
        part, parts = part_of(mesh_under(p))
        own = whole.reshape(p.shape)[rows_of(p.shape[0], parts)[part]]
        return own.reshape(-1) if whole.ndim == 1 else own

    def whole_on(self, owner: int, name: str, own: Tensor) -> Tensor | None:
        """The state of a whole parameter on the owner's host, from what each rank holds; None on the others."""
        p, world = self.named[name], self.ranks.world
        if name in self.layers:
            counts = numbers_of(p)
        else:
            runs = [run_of(p.numel(), Ranks(rank, world)) for rank in range(world)]
            counts = [run.stop - run.start for run in runs]
        flat = collected(own.reshape(-1), counts, self.ranks, owner)
        return None if flat is None else flat.view(p.shape)
