"""BigGAN: residual generators and critics of 32, 64 and 128 pixels, and the layout of its public checkpoints.

Every weight matrix is divided by its largest singular value, which one step of the power iteration follows in each
training pass. Statistics of batch norm are those of the batch in training, over all processes, and stored ones
otherwise: what a trained generator makes of a latent depends on that latent alone.

References:
    | Large Scale GAN Training for High Fidelity Natural Image Synthesis (Brock et al., 2019)
    | Self-Attention Generative Adversarial Networks (Zhang et al., 2019)
    | cGANs with Projection Discriminator (Miyato & Koyama, 2018)
    | Spectral Normalization for Generative Adversarial Networks (Miyato et al., 2018)
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrize import register_parametrization

from obrs._checks import check_count
from obrs._text import lookup
from obrs.errors import InputError, MissingLibraryError
from obrs.models.conv import check_label, class_count
from obrs.types import Array

__all__ = ["INITIAL", "BigGanCritic", "BigGanGenerator", "exported", "load"]

INITIAL = {"orthogonal": nn.init.orthogonal_, "normal": partial(nn.init.normal_, std=0.02)}
"""How weights start, by name: orthogonal, or N(0, .02)."""

_START = 4  # pixels a side of the generator's smallest map
_MOMENTUM = 0.1  # of the stored statistics
_LEAST = 1e-12  # singular value: a matrix of zeros stays one
# Channels in units of the width, from the smallest map on for a generator, from the largest one on for a critic.
_GENERATOR = {32: (4, 4, 4, 4), 64: (16, 16, 8, 4, 2), 128: (16, 16, 8, 4, 2, 1)}
_CRITIC = {32: (4, 4, 4, 4), 64: (1, 2, 4, 8, 16), 128: (1, 2, 4, 8, 16, 16)}
_HALVINGS = {32: 2, 64: 4, 128: 5}  # blocks of a critic that halve the map; the others come after them


class BigGanGenerator(nn.Module):  # type: ignore[misc]
    """A generator from latents `(n, latent)`, and labels `(n,)` if it has classes, to images in [-1, 1].

    A linear layer makes a map of 4x4, residual blocks double it. Scale and shift of every batch norm in them are
    functions of the label, or of a shared embedding of it and of a part of the latent.

    Args:
        latent: Numbers in. If hierarchical, a multiple of the number of blocks plus one: 4, 5 or 6.
        size: Pixels a side: 32, 64 or 128.
        channels: 1 for grey, 3 for colour.
        width: Channels are multiples of it.
        classes: Number of labels, or None.
        shared: Length of an embedding of labels that all blocks share; 0 gives every batch norm its own.
        hierarchical: Give each block a part of the latent; needs a shared embedding.
        attention: Side of the map that self-attention follows; 0 for none.
        initial: A key of `INITIAL`.

    Example:
        >>> generate = BigGanGenerator(120, size=128, width=4, classes=10, shared=8, hierarchical=True)
        >>> generate(torch.zeros(2, 120), torch.tensor([0, 9])).shape
        torch.Size([2, 3, 128, 128])
    """

    def __init__(
        self,
        latent: int = 128,
        *,
        size: int = 32,
        channels: int = 3,
        width: int = 64,
        classes: int | None = None,
        shared: int = 0,
        hierarchical: bool = False,
        attention: int = 0,
        initial: str = "orthogonal",
    ) -> None:
        super().__init__()
        maps = _maps(_GENERATOR, size, width)
        sides = [_START * 2**at for at in range(1, len(maps))]
        self.latent, self.classes = check_count(latent, "latent"), class_count(classes)
        self.spec = {"name": "biggan_generator", "latent": latent, "size": size, "channels": channels, "width": width}
        self.spec |= {"classes": classes, "shared": shared, "hierarchical": hierarchical, "attention": attention}
        self.spec |= {"initial": initial}
        self.pieces = len(maps) if hierarchical else 1
        if self.latent % self.pieces:
            raise InputError(
                f"a hierarchical latent of {size} pixels has {self.pieces} equal parts, got {latent}; "
                f"take {max(latent // self.pieces, 1) * self.pieces}"
            )
        if hierarchical and not shared:
            raise InputError("a hierarchical latent needs a shared embedding of labels; set shared, 128 is usual")
        _check_attention(attention, sides, maps[1:])
        piece, labels = self.latent // self.pieces, self.classes or 1  # without classes all have the label 0
        self.embed = nn.Embedding(labels, check_count(shared, "shared", least=0)) if shared else None
        said = (shared + (piece if hierarchical else 0)) if shared else labels
        self.start = nn.Linear(piece, maps[0] * _START**2)
        self.blocks = nn.ModuleList(
            _GeneratorBlock(inside, outside, said, shared=bool(shared), attends=side == attention)
            for (inside, outside), side in zip(pairwise(maps), sides, strict=True)
        )
        self.last = _Last(maps[-1], check_count(channels, "channels"))
        _begin(self, initial)
        _normalise(self, but=(nn.Embedding,))

    def forward(self, z: Array, label: Array | None = None) -> Array:
        """Return images of shape `(n, channels, size, size)`."""
        z = z.reshape(len(z), -1)
        label = _label(label, self.classes, z)
        first, *others = z.chunk(self.pieces, dim=1)
        said = label if self.embed is None else self.embed(label).to(z)
        h = self.start(first).reshape(len(z), -1, _START, _START)
        for at, block in enumerate(self.blocks):
            h = block(h, torch.cat([said, others[at]], dim=1) if others else said)
        return self.last(h)


class BigGanCritic(nn.Module):  # type: ignore[misc]
    """A critic of images `(n, channels, size, size)`, and of their labels `(n,)` if it has classes.

    Residual blocks halve the map, its sum over all pixels is what a head sees: a linear layer, and a projection on the
    embedding of the label. A second head has weights of its own, and the first one is what it would be alone.

    Args:
        size: Pixels a side: 32, 64 or 128.
        channels: 1 for grey, 3 for colour.
        width: Channels are multiples of it.
        classes: Number of labels, or None.
        heads: Numbers out: `(n,)` for one, else `(n, heads)`.
        attention: Side of the map that self-attention follows; 0 for none. A critic without such a map has none.
        initial: A key of `INITIAL`.
        spectral_norm: Divide each weight by its largest singular value.

    Example:
        >>> critic = BigGanCritic(size=32, width=4, classes=10, heads=2)
        >>> x = torch.zeros(5, 3, 32, 32)
        >>> critic(x, torch.arange(5)).shape, critic.features(x).shape
        (torch.Size([5, 2]), torch.Size([5, 16]))
    """

    def __init__(
        self,
        *,
        size: int = 32,
        channels: int = 3,
        width: int = 64,
        classes: int | None = None,
        heads: int = 1,
        attention: int = 0,
        initial: str = "orthogonal",
        spectral_norm: bool = True,
    ) -> None:
        super().__init__()
        maps = _maps(_CRITIC, size, width)
        sides = [size >> min(at + 1, _HALVINGS[size]) for at in range(len(maps))]
        self.classes = class_count(classes)
        self.shape = (check_count(channels, "channels"), size, size)
        self.spec = {"name": "biggan_critic", "size": size, "channels": channels, "width": width, "classes": classes}
        self.spec |= {"heads": heads, "attention": attention, "initial": initial, "spectral_norm": spectral_norm}
        _check_attention(attention, [*sides, size], [*maps, 8])
        befores = [size, *sides[:-1]]
        self.blocks = nn.ModuleList(
            _CriticBlock(inside, outside, halves=side < before, first=not at, attends=_attends(sides, at, attention))
            for at, ((inside, outside), before, side) in enumerate(
                zip(pairwise([channels, *maps]), befores, sides, strict=True)
            )
        )
        self.heads = nn.ModuleList(_Head(maps[-1], self.classes or 1) for _ in range(check_count(heads, "heads")))
        _begin(self, initial)
        if spectral_norm:
            _normalise(self)

    def features(self, x: Array) -> Array:
        """Return what the heads see, shape `(n, features)`."""
        if tuple(x.shape[1:]) != self.shape:
            got = f"got {tuple(x.shape[1:])}; resize, pad or transpose them"
            raise InputError(f"this critic takes images of {self.shape}, {got}")
        for block in self.blocks:
            x = block(x)
        return functional.relu(x).sum(dim=(2, 3))

    def forward(self, x: Array, label: Array | None = None) -> Array:
        """Return shape `(n,)`, or `(n, heads)` for more than one head."""
        label = _label(label, self.classes, x)
        h = self.features(x)
        out = [head(h, label) for head in self.heads]
        return out[0] if len(out) == 1 else torch.stack(out, dim=1)


class _GeneratorBlock(nn.Module):  # type: ignore[misc]
    """Batch norm, ReLU and convolution, twice, on a map that is doubled first; a convolution of 1x1 beside them."""

    def __init__(self, inside: int, outside: int, said: int, *, shared: bool, attends: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = (_ByLabel(channels, said, shared) for channels in (inside, outside))
        self.conv1, self.conv2 = (nn.Conv2d(channels, outside, 3, padding=1) for channels in (inside, outside))
        self.skip = nn.Conv2d(inside, outside, 1)
        self.attention = _Attention(outside) if attends else None

    def forward(self, x: Array, said: Array) -> Array:
        double = partial(functional.interpolate, scale_factor=2)
        h = self.conv1(double(functional.relu(self.norm1(x, said))))
        h = self.conv2(functional.relu(self.norm2(h, said))) + self.skip(double(x))
        return h if self.attention is None else self.attention(h)


class _CriticBlock(nn.Module):  # type: ignore[misc]
    """ReLU and convolution, twice, on a map that is halved in the end; the image itself sees no ReLU."""

    def __init__(self, inside: int, outside: int, *, halves: bool, first: bool, attends: bool) -> None:
        super().__init__()
        self.halves, self.first = halves, first
        self.conv1, self.conv2 = (nn.Conv2d(channels, outside, 3, padding=1) for channels in (inside, outside))
        self.skip = nn.Conv2d(inside, outside, 1) if halves or inside != outside else None
        self.attention = _Attention(outside) if attends else None

    def forward(self, x: Array) -> Array:
        h = self.conv1(x if self.first else functional.relu(x))
        h = self._half(self.conv2(functional.relu(h)))
        beside = self._half(x) if self.first else x  # of the image, halving first is the same and costs less
        beside = beside if self.skip is None else self.skip(beside)
        h = h + (beside if self.first else self._half(beside))
        return h if self.attention is None else self.attention(h)

    def _half(self, x: Array) -> Array:
        return functional.avg_pool2d(x, 2) if self.halves else x


class _Head(nn.Module):  # type: ignore[misc]
    """A linear layer with a part of its own for each label."""

    def __init__(self, features: int, labels: int) -> None:
        super().__init__()
        self.linear, self.embed = nn.Linear(features, 1), nn.Embedding(labels, features)

    def forward(self, h: Array, label: Array) -> Array:
        return self.linear(h)[:, 0] + (self.embed(label).to(h) * h).sum(dim=1)


class _Attention(nn.Module):  # type: ignore[misc]
    """Self-attention of all pixels to those of the halved map, added with a scale that starts at 0."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.query, self.key = (nn.Conv2d(channels, channels // 8, 1, bias=False) for _ in range(2))
        self.value = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.out = nn.Conv2d(channels // 2, channels, 1, bias=False)
        self.scale = nn.Parameter(torch.tensor(0.0))

    def forward(self, x: Array) -> Array:
        query = self.query(x).flatten(2)
        key, value = (functional.max_pool2d(part(x), 2).flatten(2) for part in (self.key, self.value))
        weights = torch.softmax(query.transpose(1, 2) @ key, dim=-1)
        seen = (value @ weights.transpose(1, 2)).reshape(len(x), -1, *x.shape[2:])
        return x + self.scale * self.out(seen)


class _Statistics(nn.Module):  # type: ignore[misc]
    """Maps of mean 0 and variance 1 per channel: over the batch of all processes in training, by what is stored else.

    Stored is the moving average of what batches had, as in torch's own batch norm.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Array) -> Array:
        if not (self.training and _processes() > 1):
            return functional.batch_norm(
                x, self.running_mean, self.running_var, training=self.training, momentum=_MOMENTUM
            )
        with _single(x):
            wide, count = x.float(), _processes() * x.numel() / x.shape[1]
            mean = _Total.apply(wide.sum(dim=(0, 2, 3))) / count
            off = wide - mean[:, None, None]
            variance = _Total.apply(off.square().sum(dim=(0, 2, 3))) / count
            out = off * (variance + 1e-5).rsqrt()[:, None, None]
            with torch.no_grad():
                self.running_mean.lerp_(mean, _MOMENTUM)
                self.running_var.lerp_(variance * (count / (count - 1)), _MOMENTUM)
        return out.to(x.dtype)


class _Total(torch.autograd.Function):  # type: ignore[misc]
    """The sum over all processes; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Array) -> Array:
        x = x.clone()
        torch.distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Array) -> Array:
        return _Total.forward(ctx, gradient.contiguous())


class _ByLabel(nn.Module):  # type: ignore[misc]
    """Batch norm whose scale, 1 and more, and shift are said by a label or by a vector."""

    def __init__(self, channels: int, said: int, shared: bool) -> None:
        super().__init__()
        self.norm = _Statistics(channels)
        make = partial(nn.Linear, bias=False) if shared else nn.Embedding
        self.gain, self.shift = make(said, channels), make(said, channels)

    def forward(self, x: Array, said: Array) -> Array:
        gain, shift = (part(said).to(x)[:, :, None, None] for part in (self.gain, self.shift))
        return self.norm(x) * (1 + gain) + shift


class _Last(nn.Module):  # type: ignore[misc]
    """Batch norm that no label moves, ReLU, and the convolution that makes an image."""

    def __init__(self, inside: int, channels: int) -> None:
        super().__init__()
        self.norm = _Statistics(inside)
        self.gain, self.shift = nn.Parameter(torch.ones(inside)), nn.Parameter(torch.zeros(inside))
        self.conv = nn.Conv2d(inside, channels, 3, padding=1)

    def forward(self, x: Array) -> Array:
        h = self.norm(x) * self.gain.to(x)[:, None, None] + self.shift.to(x)[:, None, None]
        return torch.tanh(self.conv(functional.relu(h)))


class _Spectral(nn.Module):  # type: ignore[misc]
    """A weight divided by its largest singular value.

    Only the left vector is stored. Without training, too, the step of the power iteration is made, and not kept: so
    the value is right for weights that were averaged or loaded beside a vector that is a little older.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("u", functional.normalize(torch.randn(rows), dim=0))

    def forward(self, weight: Array) -> Array:
        with _single(weight):
            matrix = weight.flatten(1)
            with torch.no_grad():
                v = functional.normalize(self.u @ matrix, dim=0)
                u = functional.normalize(matrix @ v, dim=0)
                if self.training:
                    self.u.copy_(torch.where(u.any(), u, self.u))  # from 0 the iteration would never come back
            sigma = u @ (matrix @ v)
            return torch.where(sigma > _LEAST, weight / sigma.clamp(min=_LEAST), weight)  # zeros stay zeros


@contextmanager
def _single(x: Array) -> Iterator[None]:
    """Compute in the precision of x inside a block of mixed precision."""
    kind = x.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        yield
        return
    with torch.autocast(kind, enabled=False):
        yield


def _processes() -> int:
    """Return how many processes train together."""
    known = torch.distributed.is_available() and torch.distributed.is_initialized()
    return int(torch.distributed.get_world_size()) if known else 1


_MATRICES = (nn.Linear, nn.Conv2d, nn.Embedding)


def _begin(network: nn.Module, initial: str) -> None:
    start = lookup(INITIAL, initial, "initial")
    for layer in network.modules():
        if isinstance(layer, _MATRICES):
            start(layer.weight)


def _normalise(network: nn.Module, but: tuple[type, ...] = ()) -> None:
    """Give every matrix its spectral norm; of a generator not the embeddings, which it may cripple."""
    for layer in [found for found in network.modules() if isinstance(found, _MATRICES) and not isinstance(found, but)]:
        register_parametrization(layer, "weight", _Spectral(layer.weight.shape[0]))


def _maps(shares: Mapping[int, tuple[int, ...]], size: Any, width: Any) -> list[int]:
    if size not in shares:
        raise InputError(f"a BigGAN makes images of 32, 64 or 128 pixels a side, got {size}; resize or pad them")
    return [check_count(width, "width") * share for share in shares[size]]


def _check_attention(attention: int, sides: list[int], channels: list[int]) -> None:
    if not attention:
        return
    if attention not in sides:
        raise InputError(
            f"attention must be 0 or the side of a map, {', '.join(map(str, sorted(set(sides))))}, got {attention}"
        )
    if channels[sides.index(attention)] < 8:
        raise InputError(
            f"attention needs a map of 8 channels, that of side {attention} has {channels[sides.index(attention)]}; "
            "take a larger width"
        )


def _attends(sides: list[int], at: int, attention: int) -> bool:
    """Whether the map after a block of the critic is the first one of that side."""
    return sides[at] == attention and attention not in sides[:at]


def _label(label: Any, classes: int | None, like: Array) -> Any:
    """Return the labels; without classes all have the label 0."""
    label = check_label(label, classes)
    return torch.zeros(len(like), dtype=torch.int64, device=like.device) if label is None else label


# The layout of public checkpoints: that of github.com/ajbrock/BigGAN-PyTorch. Each line is how a part of a name here
# is called there.
_THERE = [
    (r"^embed\b", "shared"),
    (r"^start\b", "linear"),
    (r"^heads\.0\.", ""),
    (r"^last\.conv\b", "output_layer.2"),
    (r"^last\b", "output_layer.0"),
    (r"^(blocks\.\d+)\.attention\.query\b", r"\1.1.theta"),
    (r"^(blocks\.\d+)\.attention\.key\b", r"\1.1.phi"),
    (r"^(blocks\.\d+)\.attention\.value\b", r"\1.1.g"),
    (r"^(blocks\.\d+)\.attention\.out\b", r"\1.1.o"),
    (r"^(blocks\.\d+)\.attention\.scale\b", r"\1.1.gamma"),
    (r"^(blocks\.\d+)\.skip\b", r"\1.0.conv_sc"),
    (r"^(blocks\.\d+)\.norm(\d)\b", r"\1.0.bn\2"),
    (r"^(blocks\.\d+)\.conv(\d)\b", r"\1.0.conv\2"),
    (r"\.norm\.running_", ".stored_"),
    (r"\.shift\b", ".bias"),
    (r"\.parametrizations\.weight\.original$", ".weight"),
    (r"\.parametrizations\.weight\.0\.u$", ".u0"),
]
_VALUE = ".sv0"  # a singular value, which is there for a log only


def exported(network: BigGanGenerator | BigGanCritic) -> dict[str, Array]:
    """Return the weights of a network in the layout of public checkpoints; of a critic those of its first head.

    Example:
        >>> sorted(exported(BigGanCritic(width=4, classes=10)))[-4:]
        ['linear.bias', 'linear.sv0', 'linear.u0', 'linear.weight']
    """
    found: dict[str, Array] = {}
    for name, key in _names(network).items():
        value = network.state_dict()[name].detach().clone()
        found[key] = value[None] if key.endswith(".u0") else value
    for key in [key for key in found if key.endswith(".u0")]:
        matrix = found[key.removesuffix("u0") + "weight"].flatten(1)
        v = functional.normalize(found[key][0] @ matrix, dim=0)
        found[key.removesuffix(".u0") + _VALUE] = torch.linalg.vector_norm(matrix @ v)[None]
    return found


def load(path: str | os.PathLike[str], *, heads: int = 1) -> BigGanGenerator | BigGanCritic:
    """Return the generator or the critic of a public checkpoint, in evaluation mode; its sizes say which one it is.

    A network whose checkpoint has one label for all has no classes, and is called without labels.

    Args:
        path: A `.safetensors` file, or what `torch.save` wrote of a `state_dict`. Of the latter nothing but tensors is
            read; still prefer the former.
        heads: Of a critic. A second head starts as a copy of the first one.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import save_file
        >>> critic = BigGanCritic(width=4, classes=10).eval()
        >>> path = tempfile.mkdtemp() + "/D.safetensors"
        >>> save_file(exported(critic), path)
        >>> again, x = load(path), torch.rand(2, 3, 32, 32)
        >>> torch.equal(again(x, torch.tensor([3, 8])), critic(x, torch.tensor([3, 8])))
        True
    """
    heads = check_count(heads, "heads")
    tensors = {name.removeprefix("module."): x for name, x in _read(Path(path)).items()}
    network = _built(tensors, path)
    names = _names(network)
    own = network.state_dict()
    values: dict[str, Array] = {}
    for name, key in names.items():
        wanted = (1, *own[name].shape) if key.endswith(".u0") else tuple(own[name].shape)
        there = f"shape {tuple(tensors[key].shape)}" if key in tensors else "nothing"
        if there != f"shape {wanted}":
            raise _other(path, f"{key} has {there} there and shape {wanted} here")
        values[name] = tensors[key].reshape(own[name].shape).float()
    for key in tensors:
        if key not in names.values() and not key.endswith(_VALUE):
            raise _other(path, f"{key} is there and not here")
    if heads != 1 and isinstance(network, BigGanCritic):
        network = BigGanCritic(**{**_arguments(network), "heads": heads})
        first = {name: x for name, x in values.items() if name.startswith("heads.0.")}
        for at in range(1, heads):
            values |= {name.replace("heads.0.", f"heads.{at}."): x for name, x in first.items()}
    network.load_state_dict(values)
    network.eval()
    return network


def _names(network: nn.Module) -> dict[str, str]:
    """Return what each weight is called in a public checkpoint; those of a second head are in none."""
    found = {}
    for name in network.state_dict():
        if re.match(r"heads\.[1-9]", name):
            continue
        key = name
        for pattern, there in _THERE:
            key = re.sub(pattern, there, key)
        found[name] = key
    return found


def _read(path: Path) -> Mapping[str, Array]:
    if not path.is_file():
        raise InputError(f"{path} is missing or not a file; give a checkpoint such as G_ema.pth or D.safetensors")
    if path.suffix == ".safetensors":
        try:
            from safetensors import SafetensorError
            from safetensors.torch import load_file
        except ImportError as error:
            raise MissingLibraryError("files of tensors need safetensors: pip install 'obrs[torch]'") from error
        try:
            return dict(load_file(path))
        except SafetensorError as error:
            raise InputError(f"{path} is not a file of tensors: {error}") from error
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip, end of file: whatever is wrong with it
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path} is not a file of tensors: {reason}") from error
    if not isinstance(found, dict) or not all(isinstance(x, torch.Tensor) for x in found.values()):
        raise InputError(f"{path} must hold one state_dict, names and tensors; save that alone")
    return found


def _built(tensors: Mapping[str, Array], path: Any) -> BigGanGenerator | BigGanCritic:
    """Return a network with the sizes of a checkpoint; what it says else is compared afterwards."""

    def shape(key: str) -> tuple[int, ...]:
        if key not in tensors:
            raise _other(path, f"{key} has nothing there")
        return tuple(tensors[key].shape)

    blocks = 1 + max((int(name.split(".")[1]) for name in tensors if re.match(r"blocks\.\d+\.", name)), default=-1)
    attended = [int(name.split(".")[1]) for name in tensors if re.fullmatch(r"blocks\.\d+\.1\.gamma", name)]
    outside = shape("blocks.0.0.conv1.weight")[0]
    if "embed.weight" in tensors:
        sizes, shares = {len(shares): size for size, shares in _CRITIC.items()}, _CRITIC
    else:
        sizes, shares = {len(shares) - 1: size for size, shares in _GENERATOR.items()}, _GENERATOR
    if blocks not in sizes:
        raise _other(path, f"it has {blocks} blocks, those of 32, 64 and 128 pixels have {', '.join(map(str, sizes))}")
    size = sizes[blocks]
    if "embed.weight" in tensors:
        attention = size >> min(attended[0] + 1, _HALVINGS[size]) if attended else 0
        return BigGanCritic(
            size=size,
            channels=shape("blocks.0.0.conv1.weight")[1],
            width=max(outside // shares[size][0], 1),
            classes=_told_apart(shape("embed.weight")[0]),
            attention=attention,
            spectral_norm="linear.u0" in tensors,
        )
    shared = shape("shared.weight")[1] if "shared.weight" in tensors else 0
    said = shape("blocks.0.0.bn1.gain.weight")
    hierarchical = bool(shared) and said[1] > shared
    return BigGanGenerator(
        shape("linear.weight")[1] * (blocks + 1 if hierarchical else 1),
        size=size,
        channels=shape("output_layer.2.weight")[0],
        width=max(outside // shares[size][1], 1),
        classes=_told_apart(shape("shared.weight")[0] if shared else said[0]),
        shared=shared,
        hierarchical=hierarchical,
        attention=_START * 2 ** (attended[0] + 1) if attended else 0,
    )


def _told_apart(labels: int) -> int | None:
    """Return the number of classes: a network with one label for all has none."""
    return None if labels == 1 else labels


def _arguments(network: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in network.spec.items() if key != "name"}


def _other(path: Any, what: str) -> InputError:
    return InputError(f"{path} is not a BigGAN in the layout of the public checkpoints: {what}")
