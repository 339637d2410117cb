"""The figure of pre-trained GANs, with generators and data of the user: the paper's size needs them."""

from dataclasses import replace

import numpy as np
import pytest

from obrs.errors import InputError, UnknownNameError
from obrs.experiments import Record, Rows, draw
from obrs.experiments import figure_pretrained as figure
from obrs.experiments.image_gans import load_gan, parts
from obrs.experiments.image_sheet import as_text, from_text

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a GAN of colour images without labels, and with data."""
    from obrs.fitting.tensors import write_tensors
    from obrs.models.conv import ConvCritic, ConvGenerator

    folder = tmp_path_factory.mktemp("home")
    torch.manual_seed(0)
    generator = ConvGenerator(8, size=16, channels=3, width=4)
    networks = {"generator": generator, "critic": ConvCritic(size=16, channels=3, width=4, heads=2)}
    for name, network in networks.items():
        write_tensors(folder / f"celeba-0-{name}.safetensors", network.state_dict(), {"spec": network.spec})
    with torch.no_grad():
        images = torch.tanh(2 * generator(torch.randn(1300, 8))).numpy()
    np.savez(folder / "celeba.npz", train=images[:1200], test=images[1200:])
    return folder


def small(home, **changes):
    sizes = {"pool": 80, "neighbours": 80, "judged": 80, "kept": 40, "shown": 6, "fakes": 300, "steps": 3}
    config = replace(figure.PRESETS["paper"], home=str(home), rates=(0.5,), second="efficientnet_lite0", **sizes)
    return replace(config, **changes)


@pytest.mark.filterwarnings("ignore:the two sets hardly overlap")
def test_the_papers_preset_runs_on_a_gan_and_images_of_the_user(home):
    config = small(home)
    rows = Rows(Record("figure-pretrained", "paper", {"rates": [0.5], "kept": 40}, []), progress=False)
    figure.run(config, rows)
    (row,) = rows.record().rows
    assert list(row["ratios"]) == ["own", "tuned", "gradients"]
    cells = row["ratios"]["tuned"]["cells"]
    assert {constant: list(judges) for constant, judges in cells.items()} == {"global": ["efficientnet_lite0"]}
    assert list(cells["global"]["efficientnet_lite0"]) == ["model 1", "obrs 2", "drs 2"]
    assert row["drawn"]["0.5"][2] == pytest.approx(0.5, abs=0.2)
    assert row["shape"] == [3, 16, 16]
    assert draw(rows.record())[:4] == b"\x89PNG"


def test_the_papers_preset_has_the_papers_sizes():
    paper = figure.PRESETS["paper"]
    assert (paper.second, paper.judged, paper.neighbours, paper.constants) == (
        "inception_v3",
        50_000,
        10_000,
        ("global",),
    )


def test_bad_input_is_one_line(home, tmp_path):
    with pytest.raises(InputError, match=r"there is no .*celeba.npz; it must hold train and test"):
        parts("celeba", str(tmp_path))
    np.savez(tmp_path / "flat.npz", train=np.zeros((4, 5)), test=np.zeros((4, 5)))
    with pytest.raises(InputError, match=r"flat.npz must hold train, images of shape .*, got shape \(4, 5\)"):
        parts("flat", str(tmp_path))
    with pytest.raises(
        InputError, match=r"there is no faces-0-generator; there are: celeba-0-generator in .*biggan-pretrained\.py"
    ):
        load_gan("faces", 0, str(home))
    with pytest.raises(UnknownNameError, match="unknown ratio 'feature'; did you mean 'features'"):
        small(home, ratios=("feature",))
    with pytest.raises(InputError, match="rates must be between 0 and 1"):
        small(home, rates=(1.0,))
    with pytest.raises(InputError, match="the second judge is the only one: judged must be at least 1"):
        figure.run(small(home, judged=0), Rows(Record("figure-pretrained", "paper", {}, []), progress=False))


def test_images_of_another_size_and_another_architecture_are_refused(home, tmp_path):
    from obrs.fitting.tensors import read_tensors, write_tensors

    for part in ("generator", "critic"):
        tensors, facts = read_tensors(home / f"celeba-0-{part}.safetensors", "it")
        write_tensors(tmp_path / f"celeba-0-{part}.safetensors", tensors, facts)
    np.savez(tmp_path / "celeba.npz", train=np.zeros((60, 3, 8, 8)), test=np.zeros((60, 3, 8, 8)))
    rows = Rows(Record("figure-pretrained", "paper", {}, []), progress=False)
    with pytest.raises(InputError, match=r"celeba-0 makes images of shape \(3, 16, 16\), those of the data have"):
        figure.run(small(tmp_path), rows)
    tensors, facts = read_tensors(home / "celeba-0-generator.safetensors", "it")
    first = next(iter(tensors))
    tensors[first] = torch.zeros(7)
    write_tensors(tmp_path / "celeba-0-generator.safetensors", tensors, facts)
    with pytest.raises(InputError, match=first):
        load_gan("celeba", 0, str(tmp_path))


def test_a_sheet_is_text_and_back():
    images = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4, 5))
    (one, _), shape = as_text(images), (3, 4, 5)
    back = from_text(one, shape)
    assert back.shape == (4, 5, 3)
    np.testing.assert_allclose(back.transpose(2, 0, 1) / 127.5 - 1, images[0], atol=0.5 / 127)
