"""Experiments on images: committed models, EDM and landscapes against closed forms, and data and models of the user."""

import sys
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import exact
import numpy as np
import pytest
import torch
from safetensors import safe_open

import paper
from obrs.errors import InputError, UnknownNameError
from obrs.fitting.tensors import read_tensors, write_tensors
from obrs.models.conv import ConvCritic
from obrs.models.mlp import mlp_generator
from paper import figure_landscape, figure_pretrained
from paper.figure_landscape import direction, divergence_left, move
from paper.image_diffusion import Denoiser, Guided, heun, load_diffusion, noise_levels, noisy_previews, previews
from paper.image_gans import PARTS, Labelled, load_gan, parts
from paper.image_ratios import Effort, calibrate, inception_features, subject_of
from paper.image_sheet import title
from paper.nets import WEIGHTS
from paper.nets.conv import ConvGenerator
from paper.record import Record, plain

ROOT = Path(paper.__file__).parents[1]
hardly = pytest.mark.filterwarnings("ignore:the two sets hardly overlap", "ignore:the classifier separates")


def run(module, config, rows=()):
    """Run an experiment in memory; return its record."""
    name = module.__name__.removeprefix("paper.").replace("_", "-")
    record = Record(name, "paper", plain(asdict(config)), rows, progress=False)
    module.run(config, record)
    return record


def accuracy(images, labels):
    """The share of digits that the nearest real digit gives the same name."""
    from sklearn.neighbors import KNeighborsClassifier

    real = parts("digits")["judge"]
    judge = KNeighborsClassifier(1).fit(real.x.reshape(len(real.x), -1), real.label)
    return np.mean(judge.predict(images.reshape(len(images), -1).numpy()) == labels.numpy())


# --- What is committed ------------------------------------------------------------------------------------------------


def test_every_file_of_weights_is_small_in_half_precision_and_says_which_command_made_it():
    files = sorted(WEIGHTS.glob("*.safetensors"))
    assert len(files) > 20
    assert max(path.stat().st_size for path in files) <= 4e6
    assert sum(path.stat().st_size for path in files) <= 62e6  # with all twelve fine-tunings of the queue
    for path in files:
        with safe_open(path, "pt") as file:
            assert "command" in str(file.metadata()), path.name
            kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        assert not kinds & {"F32", "F64"}, path.name


def test_parts_are_disjoint():
    split = parts("digits")
    assert {name: len(part.x) for name, part in split.items()} == {**PARTS["digits"], "test": 297}
    assert sum(len(part.x) for part in split.values()) == 1797
    with pytest.raises(UnknownNameError, match="unknown data set of the image experiments"):
        parts("cifar")


def test_a_committed_generator_makes_images_that_its_label_names():
    gan = load_gan("digits", 0)
    images, labels = gan.propose(np.arange(400))
    torch.testing.assert_close(images[100:200], gan.propose(np.arange(100, 200))[0])
    assert accuracy(images, labels) > 0.5  # chance has 0.1
    with pytest.raises(InputError, match=r"there is no digits-9-generator in .*; there are: digits-0-generator"):
        load_gan("digits", 9)


def test_the_gans_of_cifar10_are_read_with_their_critics_and_have_names_a_reader_knows():
    for name, classes in (("cifar10-gan", 10), ("cifar10-plain", None)):
        gan = load_gan(name, 0)
        images, labels = gan.propose(np.arange(4))
        assert (images.shape, images.dtype, gan.classes) == ((4, 3, 32, 32), torch.float32, classes)
        assert gan.critic(images, labels).shape == (4, 2)
    assert title("cifar10-plain-0") == "unconditional GAN, CIFAR-10, seed 0"


def test_calibration_by_class_gives_each_class_the_mean_ratio_that_its_share_asks_for():
    rng = np.random.default_rng(0)
    labels, counts = rng.integers(3, size=600), np.array([10, 20, 70])
    ratio = np.exp(calibrate(rng.normal(size=600) + labels, labels, counts))
    by_class = [ratio[labels == label].mean() * np.mean(labels == label) for label in range(3)]
    np.testing.assert_allclose(by_class, counts / 100)


def test_inception_takes_its_weights_from_a_file_and_sees_bytes_in_colour(tmp_path, monkeypatch):
    """The real weights were not run: a stand-in is behind the same call of torch-fidelity."""

    class StandIn(torch.nn.Module):
        def __init__(self, name, features, feature_extractor_weights_path):
            super().__init__()
            assert (name, features) == ("inception-v3-compat", ["2048"])
            self.shift = float(Path(feature_extractor_weights_path).read_text())

        def forward(self, x):
            assert x.dtype == torch.uint8
            return (x.float().flatten(1)[:, ::16] + self.shift,)

    module = SimpleNamespace(FeatureExtractorInceptionV3=StandIn)
    monkeypatch.setitem(sys.modules, "torch_fidelity", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch_fidelity.feature_extractor_inceptionv3", module)
    (tmp_path / "weights.pth").write_text("3")
    split, second = parts("digits"), f"inception_v3={tmp_path}/weights.pth"
    subject = subject_of("digits-0", split, Effort(1, 1, 1), judged=6, second=second)
    seen = (np.repeat(split["test"].x[:6], 3, 1).reshape(6, -1)[:, ::16] + 1) * 127.5 + 3
    np.testing.assert_allclose(subject.truth["inception_v3"], seen, atol=0.5)
    with pytest.raises(InputError, match="there is no nowhere; it must be the Inception-v3 of torch-fidelity"):
        inception_features("nowhere")


# --- Diffusion --------------------------------------------------------------------------------------------------------


def exact_denoiser(deviation):
    """The denoiser of data that are N(0, deviation²), in closed form."""
    return lambda x, sigma, label=None: x * deviation**2 / (deviation**2 + sigma.reshape(-1, 1, 1, 1) ** 2)


@pytest.mark.parametrize("deviation", [0.5, 1.3])
def test_heun_with_the_exact_denoiser_of_gaussian_data_reproduces_their_variance(deviation):
    """The flow takes 80 z to 80 z s / sqrt(s² + 80²); the error of Heun's method falls with the square of the step."""
    z = torch.randn(200, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = z * 80 * deviation / np.sqrt(deviation**2 + 80**2)
    images = [heun(exact_denoiser(deviation), z, noise_levels(steps)) for steps in (18, 36, 72)]
    errors = [float((x - truth).abs().max() / truth.abs().max()) for x in images]
    assert errors[0] < 0.1
    assert min(errors[0] / errors[1], errors[1] / errors[2]) > 3


@pytest.mark.parametrize("sigma", [0.01, 0.5, 20.0])
def test_the_network_sees_unit_variance_and_is_fitted_to_unit_variance(sigma):
    """For Gaussian pixels of standard deviation 1/2 the best network is 0, and its loss is 1 at every noise level."""
    noise = torch.Generator().manual_seed(1)
    x, normal = (torch.randn(400, 1, 8, 8, generator=noise) for _ in range(2))
    inputs, sigmas = [], torch.full((400,), sigma)

    def zero(x, time, label):
        inputs.append((x, time))
        return 0 * x

    loss, error = Denoiser(zero).loss(0.5 * x, sigmas, normal), 4 * np.sqrt(2 / x.numel())
    assert loss.item() == pytest.approx(1, abs=error)
    assert inputs[0][0].var().item() == pytest.approx(1, abs=error)
    assert inputs[0][1][0].item() == pytest.approx(np.log(sigma) / 4)
    torch.testing.assert_close(Denoiser(zero)(0.5 * x, sigmas), exact_denoiser(0.5)(0.5 * x, sigmas))


def test_an_image_belongs_to_its_id_and_previews_of_it_are_free():
    digits, calls = load_diffusion("digits", 8, 0, 2500, steps=6), []
    images, labels = digits.propose(np.arange(50))
    assert accuracy(images, labels) > 0.7  # chance has 0.1
    again, same = digits.propose(np.array([9, 3]))
    torch.testing.assert_close(again, images[[9, 3]], atol=1e-4, rtol=0)
    assert torch.equal(same, labels[[9, 3]])

    def count(*given):
        calls.append(len(given[0]))
        return digits.denoise(*given)

    z, label = digits.noise(np.arange(5))
    with torch.no_grad():
        seen = [(step, clean, len(calls)) for step, clean in previews(count, z, digits.levels, label)]
    assert [(step, count) for step, _, count in seen] == [(0, 1), (1, 3), (2, 5), (3, 7), (4, 9), (5, 11), (6, 11)]
    torch.testing.assert_close(seen[-1][1].clamp(-1, 1), images[:5], atol=1e-4, rtol=0)
    few = Labelled(*(part[:100] for part in parts("digits")["ratio"]))
    near, far = (np.abs(noisy_previews(digits, few, step) - few.x).mean() for step in (5, 1))
    assert near < 0.02 < 0.2 < far, "with little noise it is the image"


def test_guidance_by_the_exact_ratio_turns_the_model_into_the_target():
    """Model N(0, .6²), target N(.5, .6²): at noise sigma the log-ratio is linear, of slope .5 / (.6² + sigma²)."""
    z = torch.randn(200, 1, 4, 4, generator=torch.Generator().manual_seed(0))

    def log_ratio(x):  # its last channel is log(sigma) / 4, and the images are scaled to unit variance
        sigma = (4 * x[:, 1:]).exp()
        return (x[:, :1] * (sigma**2 + 0.25).sqrt() * 0.5 / (0.36 + sigma**2)).sum((1, 2, 3))

    plain, guided = (
        heun(model, z, noise_levels(40)) for model in (exact_denoiser(0.6), Guided(exact_denoiser(0.6), log_ratio))
    )
    assert plain.mean().item() == pytest.approx(0, abs=0.05)
    assert (guided - plain).mean().item() == pytest.approx(0.5, abs=0.01)
    assert guided.std().item() == pytest.approx(0.6, rel=0.05)


# --- Landscapes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def generator():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return mlp_generator(8, (1, 28, 28), width=32, layers=2, activation="leaky_relu", output="tanh")


def test_every_filter_of_a_direction_has_the_norm_of_that_filter_and_a_point_is_the_sum(generator):
    weights = dict(generator.named_parameters())
    first, other, again = (direction(weights, 0, axis) for axis in ("x", "y", "x"))
    by_hand, z = deepcopy(generator), torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for name, weight in by_hand.named_parameters():
            if weight.ndim == 1:  # biases do not move
                assert not first[name].any()
                continue
            torch.testing.assert_close(first[name].norm(dim=1), weight.norm(dim=1))
            assert torch.equal(first[name], again[name])
            cosine = (first[name] * other[name]).sum() / first[name].norm() / other[name].norm()
            assert abs(cosine) < 5 / weight.numel() ** 0.5
            weight += 0.3 * first[name] - 0.2 * other[name]
        torch.testing.assert_close(move(generator, 0.3, -0.2, (first, other), z), by_hand(z))
        assert torch.equal(move(generator, 0.0, 0.0, (first, other), z), generator(z))


def gan_divergence(shift, budget):
    """Return the GAN divergence that is left between N(shift, 1) and N(0, 1), by sums over a grid."""
    x = np.linspace(-12, 12, 20_001)
    q, p = (np.exp(-((x - m) ** 2) / 2) for m in (0, shift))
    q, p, log_ratio = q / q.sum(), p / p.sum(), shift * x - shift**2 / 2
    log_c = np.inf if budget == 1 else exact.bisect_log_c(log_ratio, budget, q)
    after = q * np.exp(np.minimum(log_ratio + log_c, 0))
    after /= after.sum()
    return float(2 * np.log(2) + np.sum(p * np.log(p / (p + after)) + after * np.log(after / (p + after))))


def test_the_divergence_at_a_point_is_a_lower_bound_of_the_closed_form_and_not_a_low_one():
    noise = torch.Generator().manual_seed(0)
    sets = [torch.randn(4000, 4, generator=noise) for _ in range(4)]
    for real in sets[::2]:
        real[:, 0] += 2.0
    budgets = (1.0, 2.0, 5.0)
    given = tuple(sets[:2]), *sets[2:]
    for budget, value in zip(budgets, divergence_left(*given, budgets, steps=100), strict=True):
        truth = gan_divergence(2.0, budget)
        assert 0.93 * truth - 0.04 < value < truth + 0.03  # the standard error is below 0.01
    (blind,) = divergence_left(*given, (1.0,), steps=1)
    assert blind < 0.5 * gan_divergence(2.0, 1.0), "of a critic that has learned nothing it is low, not wrong"


def test_flatness_of_a_plane_and_of_a_bowl():
    x, y = np.meshgrid(*[np.linspace(-0.5, 0.5, 101)] * 2)
    flatness = figure_landscape.flatness
    assert flatness(0.2 + 3 * x - 4 * y, 0.01) == pytest.approx((0.2, 5.0, 1), abs=1e-9)  # its lowest corner
    bowl = flatness(x**2 + y**2, 0.01)
    assert (bowl.minima, flatness(np.cos(4 * np.pi * x) + y**2, 0.01).minima) == (1, 2)
    assert bowl.slope == pytest.approx(2 * 0.3826, rel=0.03)  # the mean distance from the middle of a unit square


def test_the_committed_landscapes_are_below_the_ceiling_and_flatter_the_larger_the_budget(committed_record):
    record = committed_record("figure-landscape")
    for surfaces in figure_landscape._landscapes(record):
        assert np.all((surfaces >= 0) & (surfaces <= figure_landscape.CEILING))
        means = surfaces.mean(axis=(2, 3))
        assert np.all(np.diff(means, axis=1) < 0)


def test_pixels_are_seen_by_the_papers_critic():
    record = run(figure_landscape, replace(figure_landscape.PRESETS["smoke"], components=(0,), samples=260, steps=1))
    lines = [f"digits_plain-0, directions 0, line {line}" for line in range(3)]
    assert [row["row"] for row in record.rows] == [*lines, "digits_plain-0, sheet"]
    assert np.shape(record[lines[0]]["left"]) == (1, 3, 3)
    assert "pixels" in figure_landscape.table(record)


# --- GANs of the user -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a GAN of colour images without labels, and with data."""
    folder = tmp_path_factory.mktemp("home")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        net = ConvGenerator(8, size=16, channels=3, width=4)
        networks = {"generator": net, "critic": ConvCritic(size=16, channels=3, width=4, heads=2)}
        images = torch.tanh(2 * net(torch.randn(1300, 8))).numpy()
    for name, network in networks.items():
        write_tensors(folder / f"celeba-0-{name}.safetensors", network.state_dict(), {"spec": network.spec})
    np.savez(folder / "celeba.npz", train=images[:1200], test=images[1200:])
    return folder


@hardly
@pytest.mark.slow
def test_the_papers_preset_runs_on_a_gan_and_images_of_the_user(home):
    sizes = {"pool": 80, "neighbours": 80, "judged": 80, "shown": 6, "fakes": 300, "steps": 3, "rates": (0.5,)}
    config = replace(figure_pretrained.PRESETS["paper"], home=str(home), second="efficientnet_lite0", **sizes)
    record = run(figure_pretrained, config)
    (row,) = record.rows
    assert list(row["ratios"]) == ["own", "tuned", "gradients"]
    cells = row["ratios"]["tuned"]["cells"]
    assert {constant: list(judges) for constant, judges in cells.items()} == {"global": ["efficientnet_lite0"]}
    assert list(cells["global"]["efficientnet_lite0"]) == ["model 1", "obrs 2", "drs 2"]
    assert row["shape"] == [3, 16, 16]
    assert figure_pretrained.figure(record).axes


def test_models_and_data_that_do_not_fit_are_one_line(home, tmp_path, monkeypatch):
    np.savez(tmp_path / "flat.npz", train=np.zeros((4, 5)), test=np.zeros((4, 5)))
    tensors, facts = read_tensors(home / "celeba-0-generator.safetensors", "it")
    write_tensors(tmp_path / "odd-0-generator.safetensors", tensors | {next(iter(tensors)): torch.zeros(7)}, facts)
    monkeypatch.setenv("OBRS_DATA", str(tmp_path / "cache"))
    parts.cache_clear()
    for make, line in (
        (lambda: parts("celeba", str(tmp_path)), r"there is no .*celeba.npz; it must hold train and test"),
        (lambda: parts("flat", str(tmp_path)), r"flat.npz must hold train, images of shape .*, got shape \(4, 5\)"),
        (lambda: load_gan("faces", 0, str(home)), r"no faces-0-generator in .*; there are: celeba-0-generator"),
        (lambda: load_gan("odd", 0, str(tmp_path)), next(iter(tensors))),
        (lambda: parts("mnist"), "run `python -m paper fetch mnist`"),
        (lambda: load_diffusion("digits", 8, 7, 9), "no digits-8-7-9-diffusion in .*; there are: digits-8-0-2500"),
    ):
        with pytest.raises(InputError, match=line) as caught:
            make()
        assert "\n" not in str(caught.value)
