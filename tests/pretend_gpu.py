"""A GPU made believe: tensors that say they lie on another device, and are computed on the CPU.

    with pretend_gpu():
        network.to(GPU)                   # weights and inputs are wrapped, as `OnGpu`
        network(rows)                     # AssertionError: rows lie on the CPU

As on CUDA, an operation whose tensors lie on two devices fails (single numbers and indices may lie
anywhere), and `.numpy()` needs `.cpu()` first. As on Apple's GPUs, there is no float64. The device
is called "meta", the only one beside the CPU for which every build of torch records gradients.
"""

from contextlib import contextmanager, nullcontext
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

GPU = "meta"
aten = torch.ops.aten
# Operations that take tensors of two devices: copies, and indices beside what they index.
MIXED = (
    aten._to_copy,
    aten.copy_,
    aten.index,
    aten.index_put,
    aten.index_put_,
    aten._index_put_impl_,
)


class OnGpu(torch.Tensor):
    """A tensor that says that it lies on the GPU. inner: its values, on the CPU."""

    @staticmethod
    def __new__(cls, inner):
        assert inner.dtype != torch.float64, "Apple's GPUs have no float64"
        place = {
            "strides": inner.stride(),
            "storage_offset": inner.storage_offset(),
            "layout": inner.layout,
        }
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            **place,
            dtype=inner.dtype,
            device=torch.device(GPU),
            requires_grad=inner.requires_grad,
        )

    def __init__(self, inner):
        self.inner = inner

    def tolist(self):
        return self.inner.tolist()

    def __repr__(self):
        return f"OnGpu({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return _compute(operation, args, kwargs or {})


class _Dispatch(TorchDispatchMode):
    """Sees operations that make a tensor, or copy one to the GPU."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return _compute(operation, args, kwargs or {})


def _compute(operation, args, kwargs):
    """Do an operation on the CPU; its results lie where its tensors do, or where it is told."""
    if operation.overloadpacket is aten._fused_sdp_choice:
        return 0  # attention by its formula
    tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
    lie = {isinstance(each, OnGpu) for each in tensors if each.dim()} or {
        isinstance(each, OnGpu) for each in tensors
    }
    if operation.overloadpacket not in MIXED:
        assert len(lie) < 2, f"{operation} is given tensors of two devices"
    told = kwargs.get("device")
    first = (
        isinstance(tensors[0], OnGpu)
        if operation.overloadpacket in MIXED and tensors
        else True in lie
    )
    on_gpu = first if told is None else torch.device(told).type == GPU
    if told is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    args, kwargs = tree_map(
        lambda each: each.inner if isinstance(each, OnGpu) else each, (args, kwargs)
    )
    result = operation(*args, **kwargs)
    # those that it wrote into
    known = {id(each.inner): each for each in tensors if isinstance(each, OnGpu)}

    def placed(each):
        if not isinstance(each, torch.Tensor):
            return each
        return known[id(each)] if id(each) in known else OnGpu(each)

    return tree_map(placed, result) if on_gpu else result


@contextmanager
def pretend_gpu():
    """Have `choose_device` choose the GPU that is made believe, whatever is asked for."""
    from stepline.networks import device

    autocast, tensor, adamw = torch.autocast, torch.tensor, torch.optim.AdamW

    # What the kind called "meta" cannot do: mixed precision, numbers from Python, fused steps of an
    # optimizer.
    def switched(kind, *arguments, **options):
        return nullcontext() if kind == GPU else autocast(kind, *arguments, **options)

    def copied(data, *, device=None, **options):
        return tensor(data, **options).to(device)

    def unfused(*arguments, **options):
        return adamw(*arguments, **{**options, "fused": False})

    before = torch.__future__.get_overwrite_module_params_on_conversion()
    # a weight becomes another kind of tensor
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    device.set_device()
    try:
        with (
            mock.patch.object(device, "choose_device", return_value=device.Device(GPU)),
            mock.patch.object(torch, "autocast", switched),
            mock.patch.object(torch, "tensor", copied),
            mock.patch.object(torch.optim, "AdamW", unfused),
            # whose tensors cannot be wrapped
            mock.patch.object(torch, "inference_mode", torch.no_grad),
            _Dispatch(),
        ):
            yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
        device.set_device()
