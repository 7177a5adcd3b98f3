"""The private gradient: one gradient for each example, clipped, summed, with noise [ACG16, Algorithm 1].

Everything works on G teachers at once: parameters are stacked, ``{name: (G, …)}``, and a batch is (G, B, …) with a mask
(G, B), since Poisson batches differ in size. Masked places contribute exactly nothing.

The clipped sum's sensitivity is at most C in spite of float32: norms and sums of B ≤ 800 gradients are off by less than
10⁻⁴ relative, and the clipping threshold in use is C·(1 − 10⁻⁴). An example whose gradient is not finite contributes
nothing, as if it were blank.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from darrm import checks
from darrm.ensemble.network import Module, Parameters, Tensor

_CLIP_MARGIN = 1e-4


def check_model(model: Module) -> None:
    """Raise `ValueError` if per-example gradients make no sense for this module.

    Batch normalization mixes the examples of a batch, so one record would move the gradients of others; dropout draws
    from torch's global generator, which a reproducible training must not.
    """
    if not isinstance(model, nn.Module):
        checks.fail("model", type(model).__name__, "a torch.nn.Module")
    if not any(True for _ in model.parameters()):
        checks.fail("model", type(model).__name__, "a module with parameters to train")
    for name, part in model.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 (the only common base class)
            checks.fail(
                "model",
                checks.Found(f"{name}: {type(part).__name__}"),
                "free of batch normalization",
                "use nn.GroupNorm",
            )
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:  # noqa: SLF001 (as above)
            checks.fail("model", checks.Found(f"{name}: {type(part).__name__}"), "free of dropout")


def per_example_gradients(model: Module) -> Callable[..., Parameters]:
    """Make the function (parameters, x, y) → gradients of the cross-entropy, one for each teacher and example.

    It takes stacked parameters {name: (G, …)}, inputs (G, B, …) and classes (G, B), and returns {name: (G, B, …)}. Only
    the model's architecture counts, not its own parameter values.
    """

    def loss(parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(model, parameters, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, y.unsqueeze(0))

    many: Callable[..., Parameters] = vmap(vmap(grad(loss), in_dims=(None, 0, 0)), in_dims=(0, 0, 0))
    return many


def mean_gradients(model: Module) -> Callable[..., Parameters]:
    """Make the function (parameters, x, y, mask) → the mean gradient of each teacher's batch, without privacy."""

    def loss(parameters: Parameters, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(functional_call(model, parameters, (x,)), y, reduction="none")
        return (losses * mask).sum() / mask.sum()

    many: Callable[..., Parameters] = vmap(grad(loss), in_dims=(0, 0, 0, 0))
    return many


def clipped_sums(gradients: Parameters, mask: Tensor, clip: float) -> Parameters:
    """Clip each example's whole gradient to length C and add up each teacher's batch: Σ_i min(1, C/‖g_i‖)·g_i.

    Takes {name: (G, B, …)} and a mask (G, B) of 0 and 1, returns {name: (G, …)}; an example with 0 contributes nothing.
    """
    squares = sum(gradient.flatten(2).square().sum(dim=2) for gradient in gradients.values())
    norms = squares.sqrt()
    scales = torch.where(norms.isfinite(), (clip * (1.0 - _CLIP_MARGIN) / norms.clamp_min(1e-30)).clamp_max(1.0), 0.0)
    scales = scales * mask
    bad = ~norms.isfinite()
    sums = {}
    for name, gradient in gradients.items():
        flat = gradient.flatten(2)
        if bad.any():
            flat = torch.where(bad.unsqueeze(2), 0.0, flat)  # zero times infinity is not zero
        sums[name] = torch.einsum("gb,gbp->gp", scales, flat).reshape(gradient.shape[:1] + gradient.shape[2:])
    return sums


def add_noise(sums: Parameters, noise: Tensor, scale: float) -> Parameters:
    """Add ``scale`` = σC times ``noise`` to the sums, {name: (G, …)}.

    The noise is (G, number of parameters of one teacher) standard Gaussians, used in the order of the sums.
    """
    parts = noise.split([total[0].numel() for total in sums.values()], dim=1)
    return {
        name: total + scale * part.reshape(total.shape) for (name, total), part in zip(sums.items(), parts, strict=True)
    }
