"""The modules of a run's models. With LoRA the weights that are not trained are held once.

Policy, reference, critic, reward model and the models that follow one of them (EMA, snapshots) are then the same frozen
weights, each with its own adapters: the reference of a run from a whole model has none, that of a run from adapters has
those, frozen. Critics and reward models have scoring heads of their own.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from burnish.core.roles import Role
from burnish.forward.nf4 import quantise_linears
from burnish.models.known_models import adapted_model, is_adapter, resolve
from burnish.models.layer_shards import divide_layers, is_divided
from burnish.models.load import load_model, scoring, stored_outputs
from burnish.models.lora import Lora, add_lora

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Loader:
    """Loads the modules of one run, one after the other.

    lora        the adapters of the trained models
    trained_in  the dtype of weights that are all trained: fp32, or bf16 (models/compact_adamw.py)
    native      whether modules of our own may take the place of transformers', which ranks divide
    mesh        the ranks that divide the layers of every model (--shard full); then no two models share weights
    """

    def __init__(
        self,
        device: torch.device,
        lora: Lora | None,
        trained_in: torch.dtype = torch.float32,
        mesh: DeviceMesh | None = None,
        native: bool = True,
    ) -> None:
        self.device, self.lora, self.trained_in, self.mesh = device, lora, trained_in, mesh
        self.native = native and mesh is None
        self._bases: dict[Path, nn.Module] = {}  # frozen weights that several models share

    def adapts(self, role: Role) -> bool:
        """Whether a model consists of frozen weights and adapters: it is trained, or follows one that is."""
        return self.lora is not None and role.liveness != "frozen"

    def module(self, name: str, role: Role, path: Path, stored: Path | None) -> nn.Module:
        """The module of a model. path: its directory; stored: that of its adapters in a checkpoint."""
        module = self._module(name, role, path, stored)
        if self.mesh is not None and not any(map(is_divided, module.parameters())):
            divide_layers(module, self.mesh)
        return module

    def _module(self, name: str, role: Role, path: Path, stored: Path | None) -> nn.Module:
        if role.liveness == "frozen" and role.outputs and not stored_outputs(path):
            raise ValueError(
                f"the model for {name!r} in {path} gives no scores: it has no scoring head; "
                "pass a directory that `burnish train reward_model` saved"
            )
        if self.lora is not None and self.adapts(role) and role.mixed_with is None:
            started = path if is_adapter(path) else None
            return add_lora(self._base(role, path), self.lora, stored or started)
        if self.lora is not None and self._shares(role, path):
            base = self._base(role, path)
            return add_lora(base, self.lora, path) if is_adapter(path) else base
        adapted = self.adapts(role)  # peft knows transformers' models, and none of the C kernels'
        dtype, new_head = self._dtype(role), role.liveness == "trained"
        native = not adapted and dtype == torch.float32
        mesh = None if adapted or role.mixed_with is not None else self.mesh
        module = load_model(path, role.outputs, self.device, native and self.native, dtype, new_head, mesh)
        if role.mixed_with is not None:
            _average(module, load_model(resolve(role.mixed_with), role.outputs, self.device, not adapted), role.share)
        return add_lora(module, self.lora, stored) if adapted and self.lora is not None else module

    def _shares(self, role: Role, path: Path) -> bool:
        """Whether a frozen model takes the weights that are there. It computes with the same code as the trained one
        then, so that a policy that has not moved gives its reference's log-probs in every bit.
        """
        if role.liveness != "frozen" or role.mixed_with is not None or self.mesh is not None:
            return False
        return adapted_model(path) in self._bases and (not role.outputs or is_adapter(path))

    def _base(self, role: Role, path: Path) -> nn.Module:
        """The frozen weights under a model's adapters, with a scoring head where it has one."""
        place = adapted_model(path)
        if not role.outputs:
            return self._shared(place)
        if not stored_outputs(place):
            return scoring(self._shared(place), stored_outputs(path) or role.outputs)
        return load_model(place, role.outputs, self.device, False, self._dtype(role), True)

    def _shared(self, path: Path) -> nn.Module:
        """The frozen weights of a directory as a module of its own, without adapters."""
        if self.mesh is not None:
            self._bases.clear()
        if path not in self._bases:
            dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
            if self.lora is not None and self.lora.quantization is not None:
                self._bases[path] = _quantised(path, self.device, dtype)
            else:
                self._bases[path] = load_model(path, 0, self.device, False, dtype)
        return share_parameters(self._bases[path])

    def _dtype(self, role: Role) -> torch.dtype:
        """Of a model's weights: what was asked where all are trained, and for the reference, which is such a model at
        the start; else bf16 on a GPU, fp32 on a CPU.
        """
        copied = role.liveness == "frozen" and role.follows is not None and self.trained_in != torch.float32
        if copied or (role.liveness == "trained" and not self.adapts(role)):
            return self.trained_in
        still = self.adapts(role) or role.liveness == "frozen"
        return torch.bfloat16 if still and self.device.type == "cuda" else torch.float32


def _quantised(path: Path, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A model with linear maps in four bits. It is read into the host's memory: the device never holds it whole."""
    module = load_model(path, 0, torch.device("cpu"), False, dtype)
    if not quantise_linears(module, device):
        raise ValueError(
            f"the model in {path} has no linear layers with rows of whole blocks of 64 weights, so nothing can be "
            "quantised; leave out --quantization"
        )
    return module.requires_grad_(False).to(device)


def share_parameters(module: nn.Module) -> nn.Module:
    """A second model with the same parameters: what changes its structure (adapters) does not change the first."""
    return copy.deepcopy(module, {id(p): p for p in module.parameters()})


@torch.no_grad()
def _average(module: nn.Module, other: nn.Module, share: float) -> None:
    """w <- (1 - share) w + share w_other, in place."""
    parameters = dict(other.named_parameters())
    for name, p in module.named_parameters():
        if name not in parameters or parameters[name].shape != p.shape:
            raise ValueError(
                f"two models cannot be averaged: {name!r} is not in both, or not of one shape; take two of one kind"
            )
        p.lerp_(parameters[name].to(p.dtype), share)
