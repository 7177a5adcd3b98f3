"""Networks: which can be trained, what their digest covers, and the devices."""

import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

from darrm.training.network import choose_device, convolutional_network, network_digest
from darrm.training.recipes import PlainSGD, PrivateSGD
from darrm.training.teachers import Partition, train_teachers
from tests.training.support import BUILD

nn = torch.nn
X, Y = np.random.default_rng(0).random((20, 6), dtype=np.float32), np.arange(20) % 2
PARTITION = Partition.random(20, 2, seed=0)
PRIVATE, PLAIN = PrivateSGD(0.1, 3, 0.5, 1.0), PlainSGD(0.1, 1, 5)


class Recurrent(nn.Module):  # type: ignore[name-defined,misc]
    """A recurrent layer and a linear one."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.reads, self.out = layer(1, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.out(self.reads(x.unsqueeze(-1))[0][:, -1])


class RunningMean(nn.Module):  # type: ignore[name-defined,misc]
    """Subtracts the mean of all inputs so far."""

    mean: Any

    def __init__(self, *, in_place: bool = False) -> None:
        super().__init__()
        self.in_place, self.out = in_place, nn.Linear(6, 2)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Any) -> Any:
        if self.in_place:
            self.mean += x.detach().mean(0)
        else:
            self.mean = self.mean + x.detach().mean(0)
        return self.out(x - self.mean)


class Dropping(nn.Linear):  # type: ignore[name-defined,misc]
    """Dropout by a function."""

    def forward(self, x: Any) -> Any:
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


def surround(*layers: Any) -> Any:
    """Return a function that makes a network with layers between two linear ones."""
    return lambda: nn.Sequential(nn.Linear(6, 6), *(layer() for layer in layers), nn.Linear(6, 2))


def make_instance_norm() -> Any:
    return nn.Sequential(nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten())


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about old spectral norms
@pytest.mark.parametrize("recipe", [PRIVATE, PLAIN])
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (surround(partial(nn.BatchNorm1d, 6)), "got 1: BatchNorm1d: use nn.GroupNorm"),
        (surround(partial(nn.Dropout, 0.5)), "free of dropout, got 1: Dropout"),
        (surround(nn.RReLU), "got 1: RReLU: use nn.LeakyReLU"),
        (
            surround(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))),
            "_SpectralNorm: use .*weight_norm",
        ),
        (surround(lambda: nn.utils.spectral_norm(nn.Linear(6, 6))), "got 1: Linear: use .*weight_norm"),
        (surround(make_instance_norm), "got 1.1: InstanceNorm1d: use nn.GroupNorm"),
        (surround(partial(Dropping, 6, 6)), "got 1: Dropping: write it without what torch.func refuses .*random"),
        (RunningMean, "got the buffer mean: .*no running statistics"),
        (partial(RunningMean, in_place=True), "got RunningMean: write it without what torch.func refuses .*in-place"),
        (lambda: nn.LazyLinear(2), "got the lazy weight: say their sizes"),
        (lambda: nn.Linear(6, 2).half(), "got weight in float16: call .float"),
        (lambda: nn.Sequential(nn.Linear(6, 2).bfloat16()), "got 0.weight in bfloat16"),
        (lambda: nn.Linear(6, 2).requires_grad_(False), "a module with parameters to train"),
        (nn.ReLU, "a module with parameters to train"),
        (nn.Linear(6, 2), "a function that makes a network, got a Linear"),
        (lambda: 5, "a function that makes a torch.nn.Module, got one that makes int"),
        (nn.Linear, "build failed .*missing 2 required positional arguments"),
        (lambda: nn.Linear(-6, 2), "build failed .*negative dimension"),
        (lambda: nn.Linear(6, 129), "for 128 classes at most, got 129"),
    ],
)
def test_training_refuses_a_network_by_its_layer(build: Any, message: str, recipe: Any) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        train_teachers(X, Y, PARTITION, recipe, build=build, progress=False)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("layer", [nn.GRU, nn.RNN])
def test_recurrent_layers_are_trained_only_without_privacy(layer: Any) -> None:
    build = partial(Recurrent, layer)
    with pytest.raises(ValueError, match=f"got reads: {layer.__name__}: use nn.LSTM"):
        train_teachers(X, Y, PARTITION, PRIVATE, build=build, progress=False)
    assert train_teachers(X, Y, PARTITION, PLAIN, build=build, progress=False).K == 2


class Curved(nn.Module):  # type: ignore[name-defined,misc]
    """A linear layer and a curve."""

    def __init__(self, curve: Any = torch.tanh, scale: Any = 1.0, buffer: float = 0.0) -> None:
        super().__init__()
        self.layer, self.curve, self.scale = nn.Linear(4, 2), curve, scale
        self.register_buffer("shift", torch.tensor([buffer]))

    def forward(self, x: Any) -> Any:
        return self.curve(self.layer(x)) * self.scale + self.shift


class CurvedOtherwise(Curved):
    def forward(self, x: Any) -> Any:
        return self.curve(self.layer(x)) * self.scale - self.shift


def convolve(activation: Any, *, dilation: int = 1) -> Any:
    return lambda: nn.Sequential(nn.Conv1d(1, 1, 2, dilation=dilation), activation, nn.Flatten())


def test_a_digest_covers_code_settings_and_buffers() -> None:
    networks = [
        Curved,
        CurvedOtherwise,
        partial(Curved, torch.relu),
        *(partial(Curved, scale=scale) for scale in (2.0, torch.tensor(2.0), np.array([2.0, 1.0]))),
        partial(Curved, buffer=1.0),
        *(partial(Curved, partial(torch.clamp, min=least)) for least in (0.0, 1.0)),
        *(convolve(layer) for layer in (nn.ReLU(), nn.Tanh(), nn.LeakyReLU(0.1), nn.LeakyReLU(0.2))),
        convolve(nn.ReLU(), dilation=2),
        BUILD,
        partial(convolutional_network, side=8, classes=3),
    ]
    digests = [network_digest(build) for build in networks]
    assert len(set(digests)) == len(networks)
    assert digests == [network_digest(build) for build in networks]


@pytest.mark.slow
def test_a_digest_is_the_same_in_another_process() -> None:
    script = "from tests.training.support import BUILD; from darrm.training.network import network_digest; "
    script += "print(network_digest(BUILD))"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == network_digest(BUILD)


def test_a_digest_needs_readable_source() -> None:
    names: dict[str, Any] = {"torch": torch, "__name__": "typed"}
    exec("class Typed(torch.nn.Module):\n    pass", names)  # noqa: S102 (as at a prompt)
    with pytest.raises(ValueError, match="build must be code with a readable source, got 'Typed'"):
        network_digest(names["Typed"])


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "tpu", "cuda:4096"])
def test_choose_device_refuses_devices_that_do_not_exist(device: str) -> None:
    with pytest.raises(ValueError, match="device must be"):
        choose_device(device)
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"side": 10}, "a multiple of 4"), ({"classes": 1}, "classes must be"), ({"channels": 0}, "channels must be")],
)
def test_convolutional_network_refuses_wrong_shapes(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convolutional_network(**settings)
