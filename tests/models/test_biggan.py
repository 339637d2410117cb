"""BigGAN: the counts and shapes that are published, its parts by other routes, and the layout of its checkpoints."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from obrs.errors import InputError, InputTypeError, UnknownNameError
from obrs.models import biggan
from obrs.models.biggan import BigGanCritic, BigGanGenerator, exported, load

ROOT = Path(__file__).parents[2]
IMAGENET = {"size": 128, "width": 96, "classes": 1000, "attention": 64}
HIERARCHICAL = {"shared": 128, "hierarchical": True}
# Generator, critic, and critic with two heads. The first two numbers are compare_gan's; the others are ours.
COUNTS = {
    (128, 96, 1000): (70_433_988, 87_982_370, 89_519_907),
    (64, 32, None): (8_541_443, 4_888_417, 4_889_442),
    (32, 64, 10): (4_304_387, 4_207_361, 4_210_178),
}


def count(network):
    return sum(weight.numel() for weight in network.parameters())


def small(**changes):
    """A generator and a critic of 64 pixels with everything that there is."""
    shared = {"size": 64, "width": 4, "classes": 5, "attention": 16} | changes
    return BigGanGenerator(20, **shared, shared=6, hierarchical=True), BigGanCritic(**shared, heads=2)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Sizes


@pytest.mark.parametrize("key", COUNTS, ids=str)
def test_parameters_are_as_many_as_published(key):
    size, width, classes = key
    shared = {"size": size, "width": width, "classes": classes, "attention": 64 if size == 128 else 0}
    more, latent = (HIERARCHICAL, 120) if size == 128 else ({}, 128)
    with torch.device("meta"):
        generator, critic = BigGanGenerator(latent, **shared, **more), BigGanCritic(**shared)
        assert (count(generator), count(critic), count(BigGanCritic(**shared, heads=2))) == COUNTS[key]
        labels = () if classes is None else (torch.zeros(3, dtype=torch.int64),)
        x = generator(torch.zeros(3, latent), *labels)
        assert x.shape == (3, 3, size, size)
        assert critic(x, *labels).shape == (3,)
        assert BigGanCritic(**shared, heads=2)(x, *labels).shape == (3, 2)


def test_attention_is_after_the_map_of_that_side_in_both_networks():
    with torch.device("meta"):
        networks = BigGanGenerator(120, **IMAGENET, **HIERARCHICAL), BigGanCritic(**IMAGENET)
    places = [[at for at, block in enumerate(net.blocks) if block.attention is not None] for net in networks]
    assert places == [[3], [0]]


@pytest.mark.parametrize("size", [32, 64, 128])
def test_images_of_every_size_come_and_go(size):
    generator, critic = BigGanGenerator(8, size=size, width=2), BigGanCritic(size=size, width=2)
    x = generator(noise(2, 8))
    assert x.shape == (2, 3, size, size)
    assert x.abs().max() <= 1
    assert critic(x).shape == (2,)


# The parts, by other routes


def test_spectral_norm_is_the_largest_singular_value():
    generator, critic = small()
    for _ in range(150):
        for network in (generator, critic):
            for layer in network.modules():
                if nn.utils.parametrize.is_parametrized(layer):
                    _ = layer.weight  # in training each look is one step of the power iteration
    normalised = 0
    for network in (generator.eval(), critic.eval()):
        for layer in network.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d | nn.Embedding) and layer is not generator.embed:
                assert torch.linalg.svdvals(layer.weight.flatten(1))[0].item() == pytest.approx(1, abs=2e-2)
                normalised += 1
    assert normalised > 40
    assert not nn.utils.parametrize.is_parametrized(generator.embed)


def test_weights_start_orthogonal_or_normal():
    generator = BigGanGenerator(8, width=16, classes=3)
    matrix = generator.blocks[0].conv1.parametrizations.weight.original.flatten(1)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(len(matrix)), rtol=0, atol=1e-4)
    critic = BigGanCritic(width=16, classes=3, initial="normal")
    matrix = critic.blocks[1].conv1.parametrizations.weight.original
    assert matrix.std().item() == pytest.approx(0.02, rel=4 / (2 * matrix.numel()) ** 0.5)
    assert abs(matrix.mean().item()) < 4 * 0.02 / matrix.numel() ** 0.5


def test_batch_norm_is_that_of_torch_in_training_and_with_what_is_stored():
    ours, theirs, x = biggan._Statistics(6), nn.BatchNorm2d(6, affine=False), 3 + 2 * noise(4, 6, 5, 5)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_gain_and_shift_are_said_by_the_label_and_by_a_part_of_the_latent():
    generator = small()[0].eval()
    z, labels = noise(3, 20), torch.tensor([0, 1, 4])
    whole = generator(z, labels)
    assert not torch.allclose(whole, generator(z, (labels + 1) % 5), atol=1e-4)
    for piece in range(5):
        moved = z.clone()
        moved[:, 4 * piece : 4 * piece + 4] += 1
        assert not torch.allclose(whole, generator(moved, labels), atol=1e-5), piece


def test_attention_is_that_of_torch_and_starts_as_nothing():
    attention, x = biggan._Attention(16), noise(2, 16, 6, 6)
    assert torch.equal(attention(x), x)
    nn.init.constant_(attention.scale, 0.7)
    query = attention.query(x).flatten(2).transpose(1, 2)
    key, value = (
        functional.max_pool2d(part(x), 2).flatten(2).transpose(1, 2) for part in (attention.key, attention.value)
    )
    seen = functional.scaled_dot_product_attention(query, key, value, scale=1.0)
    expected = x + 0.7 * attention.out(seen.transpose(1, 2).reshape(2, 8, 6, 6))
    torch.testing.assert_close(attention(x), expected)


def test_a_projection_adds_a_head_per_class_and_a_second_head_changes_nothing_in_the_first():
    one = BigGanCritic(width=4, classes=3).double().eval()
    two = BigGanCritic(width=4, classes=3, heads=2).double().eval()
    two.load_state_dict(one.state_dict(), strict=False)
    x, labels = noise(6, 3, 32, 32).double(), torch.arange(6) % 3
    h, head = one.features(x), one.heads[0]
    expected = [(head.linear.weight[0] + head.embed.weight[k]) @ row for k, row in zip(labels, h, strict=True)]
    torch.testing.assert_close(one(x, labels), torch.stack(expected) + head.linear.bias)
    torch.testing.assert_close(two(x, labels)[:, 0], one(x, labels))
    assert not torch.allclose(two(x, labels)[:, 1], one(x, labels))


def test_a_matrix_of_zeros_stays_one_and_can_be_left():
    critic = BigGanCritic(width=4)
    layer = critic.blocks[1].conv1
    plain = layer.parametrizations.weight.original
    kept = plain.detach().clone()
    with torch.no_grad():
        plain.zero_()
    critic(noise(2, 3, 32, 32)).sum().backward()
    assert torch.equal(layer.weight, torch.zeros_like(plain))
    assert all(weight.grad.isfinite().all() for weight in critic.parameters())
    with torch.no_grad():
        plain.copy_(kept)
    for _ in range(20):
        again = layer.weight
    assert torch.linalg.svdvals(again.flatten(1))[0].item() == pytest.approx(1, abs=0.1)


def test_bf16_normalises_in_single_precision():
    """The matrix is the same inside mixed precision: its singular value is not taken of rounded numbers."""
    critic = BigGanCritic(width=4).eval()
    layer = critic.blocks[1].conv1
    plain = layer.weight
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer.weight, plain)
        assert critic(noise(2, 3, 32, 32)).isfinite().all()


TWO = """
import sys, torch
from torch import nn
from obrs.models.biggan import BigGanGenerator

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
generator = BigGanGenerator(8, width=2, classes=3, initial="normal")
mine = slice(4 * rank, 4 * rank + 4)
z, labels = torch.randn(8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 3
shared = nn.parallel.DistributedDataParallel(generator)
shared(z[mine], labels[mine]).square().mean().backward()
if rank == 0:
    gradients = {f"gradient {name}": weight.grad for name, weight in generator.named_parameters()}
    torch.save(gradients | generator.state_dict(), sys.argv[1])
del shared
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_normalise_the_batch_of_both(tmp_path):
    (tmp_path / "two.py").write_text(TWO)
    launch = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    subprocess.run([*launch, tmp_path / "two.py", tmp_path / "found"], check=True, capture_output=True)
    found = torch.load(tmp_path / "found", weights_only=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        generator = BigGanGenerator(8, width=2, classes=3, initial="normal")
    generator(noise(8, 8, seed=1), torch.arange(8) % 3).square().mean().backward()
    for name, weight in generator.named_parameters():
        torch.testing.assert_close(found.pop(f"gradient {name}"), weight.grad, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(found, dict(generator.state_dict()), rtol=1e-4, atol=1e-6)


# Public checkpoints


def after_some_passes(network):
    """The network with statistics and singular vectors that are not those it began with."""
    generator = torch.Generator().manual_seed(3)
    for name, x in network.state_dict().items():
        if name.endswith(("running_mean", "scale", "bias", "shift")):
            x += 0.3 * torch.randn(x.shape, generator=generator)
        if name.endswith("running_var"):
            x *= 1.7
    return network.eval()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("kind", ["32", "64", "128", "hierarchical", "grey"])
def test_a_checkpoint_comes_back_to_the_same_bits(tmp_path, kind, suffix):
    shared = {"size": int(kind) if kind.isdigit() else 64, "width": 2, "classes": 4}
    shared |= {"channels": 1} if kind == "grey" else {}
    more = {"shared": 3, "hierarchical": True, "attention": 32} if kind == "hierarchical" else {}
    generator = after_some_passes(BigGanGenerator(20, **shared, **more))
    critic = after_some_passes(BigGanCritic(**shared, attention=more.get("attention", 0) and 8))
    z, labels = noise(2, 20), torch.tensor([1, 3])
    for network, given in ((generator, z), (critic, generator(z, labels).detach())):
        path = tmp_path / f"network{suffix}"
        save_file(exported(network), path) if suffix == ".safetensors" else torch.save(exported(network), path)
        again = load(path)
        assert again.spec == network.spec
        assert not again.training
        assert torch.equal(again(given, labels), network(given, labels))


@pytest.mark.parametrize("more", [{}, {"shared": 3, "hierarchical": True}], ids=["plain", "hierarchical"])
def test_a_network_without_classes_comes_back_without_them(tmp_path, more):
    generator = after_some_passes(BigGanGenerator(20, width=2, **more))
    critic = after_some_passes(BigGanCritic(width=2))
    z = noise(2, 20)
    for network, given in ((generator, z), (critic, generator(z).detach())):
        save_file(exported(network), tmp_path / "network.safetensors")
        again = load(tmp_path / "network.safetensors")
        assert again.spec == network.spec
        assert torch.equal(again(given), network(given))
    both = load(tmp_path / "network.safetensors", heads=2)
    assert both.classes is None
    assert both(given).shape == (2, 2)


def test_names_are_those_of_the_public_layout():
    generator, critic = small()
    names = set(exported(generator))
    assert {"shared.weight", "linear.weight", "linear.bias", "linear.u0", "linear.sv0"} <= names
    assert {
        f"blocks.3.0.{part}.{w}" for part in ("conv1", "conv2", "conv_sc") for w in ("weight", "bias", "u0")
    } <= names
    assert {f"blocks.0.0.bn{k}.{part}.weight" for k in (1, 2) for part in ("gain", "bias")} <= names
    assert {"blocks.0.0.bn1.stored_mean", "blocks.0.0.bn2.stored_var", "blocks.1.1.gamma"} <= names
    assert {f"blocks.1.1.{part}.weight" for part in ("theta", "phi", "g", "o")} <= names
    assert {f"output_layer.0.{part}" for part in ("gain", "bias", "stored_mean", "stored_var")} <= names
    assert {"output_layer.2.weight", "output_layer.2.bias"} <= names
    assert not [name for name in names if "param" in name or "norm" in name]
    assert {"embed.weight", "embed.u0", "linear.weight", "blocks.0.0.conv_sc.weight"} <= set(exported(critic))
    assert not [name for name in exported(critic) if name.startswith("heads")]


def by_hand(tensors, x, label):
    """A critic of 32 pixels from the names of the public layout alone, as its layers are described."""

    def weight(name):
        w = tensors[f"{name}.weight"]
        v = functional.normalize(tensors[f"{name}.u0"] @ w.flatten(1))
        u = functional.normalize(v @ w.flatten(1).T)
        return w / (v @ w.flatten(1).T @ u.T).squeeze()

    def conv(name, h):
        return functional.conv2d(
            h, weight(name), tensors[f"{name}.bias"], padding=tensors[f"{name}.weight"].shape[-1] // 2
        )

    for at in range(4):
        name, pool = f"blocks.{at}.0", nn.AvgPool2d(2) if at < 2 else nn.Identity()
        h = conv(f"{name}.conv2", conv(f"{name}.conv1", x.relu() if at else x).relu())
        beside = pool(conv(f"{name}.conv_sc", x)) if at < 2 else x
        x = pool(h) + beside
    h = x.relu().sum((2, 3))
    return (h @ weight("linear").T + tensors["linear.bias"])[:, 0] + (weight("embed")[label] * h).sum(1)


def test_a_checkpoint_means_what_its_layout_says():
    critic = after_some_passes(BigGanCritic(width=4, classes=4))
    x, label = noise(3, 3, 32, 32), torch.tensor([2, 0, 3])
    torch.testing.assert_close(critic(x, label), by_hand(exported(critic), x, label), rtol=1e-4, atol=1e-4)


def test_a_second_head_starts_as_the_first(tmp_path):
    critic = after_some_passes(BigGanCritic(width=2, classes=4))
    save_file(exported(critic), tmp_path / "D.safetensors")
    x, labels = noise(2, 3, 32, 32), torch.tensor([1, 3])
    both = load(tmp_path / "D.safetensors", heads=2)(x, labels)
    assert torch.equal(both, torch.stack([critic(x, labels)] * 2, dim=1))


@pytest.mark.parametrize("network", [BigGanGenerator(8, width=2), BigGanCritic(width=2)], ids=["G", "D"])
@pytest.mark.parametrize("heads", ["x", 0, 1.5, None])
def test_heads_are_counted_whatever_the_network(tmp_path, network, heads):
    save_file(exported(network), tmp_path / "network.safetensors")
    with pytest.raises(InputError, match="heads must be a whole number of at least 1, got"):
        load(tmp_path / "network.safetensors", heads=heads)


def test_a_checkpoint_of_many_gpus_has_a_prefix(tmp_path):
    critic = BigGanCritic(width=2, classes=4)
    save_file({f"module.{name}": x for name, x in exported(critic).items()}, tmp_path / "D.safetensors")
    assert load(tmp_path / "D.safetensors").spec == critic.spec


def drop(tensors):
    del tensors["blocks.1.0.bn2.stored_mean"]


def reshape(tensors):
    tensors["blocks.2.0.conv2.weight"] = torch.zeros(8, 7, 3, 3)


def add(tensors):
    tensors["blocks.1.0.conv9.weight"] = torch.zeros(1)


def deepen(tensors):
    tensors["blocks.9.0.conv1.weight"] = torch.zeros(1)


def headless(tensors):
    del tensors["blocks.0.0.conv1.weight"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (drop, r"blocks.1.0.bn2.stored_mean has nothing there and shape \(8,\) here"),
        (reshape, r"blocks.2.0.conv2.weight has shape \(8, 7, 3, 3\) there and shape \(8, 8, 3, 3\) here"),
        (add, "blocks.1.0.conv9.weight is there and not here"),
        (deepen, "it has 10 blocks, those of 32, 64 and 128 pixels have 3, 4, 5"),
        (headless, "blocks.0.0.conv1.weight has nothing there"),
    ],
)
def test_another_checkpoint_is_refused_with_the_first_key_that_differs(tmp_path, change, line):
    tensors = exported(BigGanGenerator(8, width=2, classes=4))
    change(tensors)
    save_file(tensors, tmp_path / "G.safetensors")
    with pytest.raises(InputError, match=f"G.safetensors is not a BigGAN in the layout .*: {line}$"):
        load(tmp_path / "G.safetensors")


class Evil:
    def __reduce__(self):
        return print, ("this must not be run",)


def test_nothing_but_tensors_is_read(tmp_path, capsys):
    torch.save({"linear.weight": Evil()}, tmp_path / "G.pth")
    (tmp_path / "broken.safetensors").write_bytes(b"\x07" * 30)
    torch.save({"state": {"linear.weight": torch.zeros(1)}}, tmp_path / "nested.pth")
    for name, line in (
        ("G.pth", "is not a file of tensors: "),
        ("broken.safetensors", "is not a file of tensors: "),
        ("nested.pth", "must hold one state_dict"),
        ("nothing.pth", "is missing or not a file"),
    ):
        with pytest.raises(InputError, match=f"{name} {line}") as caught:
            load(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert "must not" not in capsys.readouterr().out


# Mistakes


@pytest.mark.parametrize(
    ("make", "error", "line"),
    [
        (lambda: BigGanGenerator(size=48), InputError, "images of 32, 64 or 128 pixels a side, got 48; resize or pad"),
        (
            lambda: BigGanGenerator(128, size=128, shared=8, hierarchical=True),
            InputError,
            "a hierarchical latent of 128 pixels has 6 equal parts, got 128; take 126",
        ),
        (lambda: BigGanGenerator(8, hierarchical=True), InputError, "needs a shared embedding of labels; set shared"),
        (lambda: BigGanCritic(attention=12), InputError, "attention must be 0 or the side of a map, 8, 16, 32, got 12"),
        (lambda: BigGanCritic(attention=16, width=1), InputError, "that of side 16 has 4; take a larger width"),
        (lambda: BigGanCritic(initial="orthogonl"), UnknownNameError, "did you mean 'orthogonal'"),
        (lambda: BigGanCritic(width=2)(torch.zeros(1, 3, 8, 8)), InputError, r"takes images of \(3, 32, 32\), got"),
        (lambda: BigGanCritic(width=2, classes=3)(torch.zeros(1, 3, 32, 32)), InputTypeError, "has 3 classes: pass"),
    ],
)
def test_mistakes_are_one_line(make, error, line):
    with pytest.raises(error, match=line):
        make()


def test_a_copy_is_a_network_of_its_own():
    generator = BigGanGenerator(8, width=2)
    other = copy.deepcopy(generator)
    generator(noise(4, 8))
    assert not torch.equal(generator.blocks[0].norm1.norm.running_mean, other.blocks[0].norm1.norm.running_mean)
