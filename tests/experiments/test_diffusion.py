"""The diffusion models and their table: EDM against closed forms, early rejection, pipelines and folders."""

from dataclasses import replace

import numpy as np
import pytest

from obrs.errors import InputError, UnknownNameError
from obrs.experiments import Record, Rows, draw, render
from obrs.experiments import table_diffusion as table
from obrs.experiments.record import plain

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("safetensors")

from obrs.experiments.image_diffusion import (  # noqa: E402
    Denoiser,
    Setting,
    fit_denoiser,
    heun,
    load_diffusion,
    noise_levels,
    previews,
    shrunk,
    train_diffusion,
)
from obrs.experiments.image_gans import Labelled, parts  # noqa: E402
from obrs.experiments.image_pools import cached_pool, make_pool, noisy_previews, sample_early  # noqa: E402
from obrs.fitting.tensors import Checkpoint, read_tensors, write_tensors  # noqa: E402


@pytest.fixture(scope="module")
def digits():
    return load_diffusion("digits", 8, 0, 2500, steps=6)


def of_gaussian(deviation):
    """The denoiser of data that are N(0, deviation²), in closed form."""

    def denoise(x, sigma, label=None):
        return x * deviation**2 / (deviation**2 + sigma.reshape(-1, 1, 1, 1) ** 2)

    return denoise


@pytest.mark.parametrize("deviation", [0.5, 1.3])
def test_heun_with_the_exact_denoiser_of_gaussian_data_reproduces_their_variance(deviation):
    """The flow takes 80 z to 80 z s / sqrt(s² + 80²); the error of Heun's method falls with the square of the step."""
    z = torch.randn(200, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = z * 80 * deviation / np.sqrt(deviation**2 + 80**2)
    errors = []
    for steps in (18, 36, 72):
        x = heun(of_gaussian(deviation), z, noise_levels(steps))
        errors.append(float((x - exact).abs().max() / exact.abs().max()))
    assert errors[0] < 0.1
    assert errors[0] / errors[1] > 3
    assert errors[1] / errors[2] > 3
    assert x.std().item() == pytest.approx(deviation, rel=0.03)


@pytest.mark.parametrize("sigma", [0.01, 0.5, 20.0])
def test_the_network_sees_unit_variance_and_is_fitted_to_unit_variance(sigma):
    """For Gaussian pixels of standard deviation 1/2 the best network is 0, and its loss is 1 at every noise level."""
    noise = torch.Generator().manual_seed(1)
    x, normal = (torch.randn(400, 1, 8, 8, generator=noise) for _ in range(2))
    inputs = []

    def zero(x, time, label):
        inputs.append((x, time))
        return 0 * x

    sigmas = torch.full((400,), sigma)
    loss = Denoiser(zero).loss(0.5 * x, sigmas, normal)
    error = 4 * np.sqrt(2 / x.numel())
    assert loss.item() == pytest.approx(1, abs=error)
    assert inputs[0][0].var().item() == pytest.approx(1, abs=error)
    assert inputs[0][1][0].item() == pytest.approx(np.log(sigma) / 4)
    best = of_gaussian(0.5)(0.5 * x, sigmas)
    torch.testing.assert_close(Denoiser(zero)(0.5 * x, sigmas), best)


def test_an_image_belongs_to_its_id_in_every_batch(digits):
    images, labels = digits.propose(np.arange(30))
    for ids in (np.arange(7, 12), np.array([29, 3])):
        again, same = digits.propose(ids)
        torch.testing.assert_close(again, images[ids], atol=1e-4, rtol=0)
        assert torch.equal(same, labels[ids])
    assert not torch.allclose(digits.propose(np.arange(30), seed=1)[0], images)


def test_the_committed_model_makes_digits_that_its_label_names():
    from sklearn.neighbors import KNeighborsClassifier

    images, labels = load_diffusion("digits", 8, 0, 2500).propose(np.arange(200))
    real = parts("digits")["judge"]
    judge = KNeighborsClassifier(1).fit(real.x.reshape(len(real.x), -1), real.label)
    right = np.mean(judge.predict(images.reshape(200, -1).numpy()) == labels.numpy())
    assert right > 0.8  # chance has 0.1


def test_previews_are_free_and_the_last_one_is_the_image(digits):
    calls = []

    def counted(x, sigma, label):
        calls.append(len(x))
        return digits.denoise(x, sigma, label)

    z, label = digits.noise(np.arange(5))
    with torch.no_grad():
        seen = list(previews(counted, z, digits.levels, label))
    assert len(calls) == seen[-1].evaluations == digits.evaluations == 11
    assert [one.evaluations for one in seen] == [1, 3, 5, 7, 9, 11, 11]
    torch.testing.assert_close(seen[-1].clean.clamp(-1, 1), digits.propose(np.arange(5))[0], atol=1e-4, rtol=0)


def test_early_rejection_keeps_the_images_of_the_pool_and_pays_only_for_what_went_on(digits):
    pool = make_pool(digits, 60, [2, 4], progress=False)
    bright = [images.mean(axis=(1, 2, 3)) for images in (pool.early[2], pool.early[4], pool.images)]
    cuts = [np.quantile(x, 0.3) for x in bright]
    stays = np.cumprod([x > cut for x, cut in zip(bright, cuts, strict=True)], axis=0).astype(bool)

    def decide(seen, labels, ids):
        assert len(labels) == len(ids) == len(seen[-1])
        return seen[-1].mean(axis=(1, 2, 3)) > cuts[len(seen) - 1]

    kept = sample_early(digits, np.arange(60), [2, 4], decide)
    np.testing.assert_array_equal(kept.ids, np.flatnonzero(stays[2]))
    np.testing.assert_allclose(kept.images, pool.images[stays[2]], atol=1e-4)
    np.testing.assert_array_equal(kept.labels, pool.labels[stays[2]])
    assert kept.evaluations == 5 * 60 + 4 * stays[0].sum() + 2 * stays[1].sum()


def test_the_preview_of_a_real_image_with_little_noise_is_that_image(digits):
    real = parts("digits")["ratio"]
    few = Labelled(real.x[:100], real.label[:100])
    near, far = (np.abs(noisy_previews(digits, few, step) - few.x).mean() for step in (5, 1))
    assert near < 0.02 < 0.2 < far


@pytest.mark.parametrize("size", [14, 28])
def test_a_model_is_trained_and_samples_at_any_size_and_goes_on_where_it_was_killed(size, tmp_path):
    noise = np.random.default_rng(0)
    real = Labelled(noise.uniform(-1, 1, (40, 1, size, size)).astype(np.float32), noise.integers(0, 10, 40))
    setting = Setting(width=8, batch_size=8)
    denoise, course = fit_denoiser(real, setting, 2, 0, progress=False)
    assert course.steps == 2
    x = heun(denoise, torch.zeros(2, 1, size, size), noise_levels(2), torch.tensor([0, 9]))
    assert x.shape == (2, 1, size, size)
    if size == 14:
        kept = Checkpoint(tmp_path / "a.fit", {"seed": 0})
        killed = RuntimeError("killed")

        class Kills(Checkpoint):
            def write(self, tensors, facts):
                super().write(tensors, facts)
                raise killed

        with pytest.raises(RuntimeError, match="killed"):
            fit_denoiser(real, setting, 2, 0, checkpoint=Kills(kept.path, kept.identity), progress=False)
        again, _ = fit_denoiser(real, setting, 2, 0, checkpoint=kept, progress=False)
        for a, b in zip(denoise.parameters(), again.parameters(), strict=True):
            assert torch.equal(a, b)


def small(**changes):
    sizes = {"pool": 520, "neighbours": 100, "judged": 0, "shown": 4, "steps": 3, "epochs": 1, "rates": (0.5,)}
    return replace(table.PRESETS["paper"], **(sizes | {"sampler": 2, "size": 8} | changes))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with real images of 8x8 and a pipeline of diffusers that makes some."""
    diffusers = pytest.importorskip("diffusers")
    folder = tmp_path_factory.mktemp("home")
    digits = parts("digits")
    real = {name: np.concatenate([digits[part].x for part in of]) for name, of in PARTS.items()}
    labels = {f"{name}_labels": np.concatenate([digits[part].label for part in of]) for name, of in PARTS.items()}
    np.savez(folder / "mine.npz", **real, **labels)
    torch.manual_seed(0)
    blocks = {"down_block_types": ["DownBlock2D"] * 2, "up_block_types": ["UpBlock2D"] * 2}
    unet = diffusers.UNet2DModel(
        8, in_channels=1, out_channels=1, layers_per_block=1, norm_num_groups=4, block_out_channels=[4, 8], **blocks
    )
    diffusers.DDIMPipeline(unet.eval(), diffusers.DDIMScheduler()).save_pretrained(folder / "pipe")
    return folder


PARTS = {"train": ("generator", "ratio", "features", "judge"), "test": ("test",)}


@pytest.mark.filterwarnings("ignore:the two sets hardly overlap", "ignore:the classifier separates")
def test_the_papers_preset_runs_on_a_pipeline_of_diffusers(home):
    config = small(source=str(home / "pipe"), real=str(home / "mine.npz"))
    record = Record("table-diffusion", "paper", plain(vars(config)), [])
    rows = Rows(record, progress=False)
    table.run(config, rows)
    (row,) = rows.record().rows
    assert row["constant"] == "class"  # those that the classifier sees
    assert list(row["cells"]["classifier"]) == ["model 1", "obrs 2", "drs 2"]
    assert row["shape"] == [1, 8, 8]
    assert "early" not in row
    assert draw(rows.record())[:4] == b"\x89PNG"
    assert "the paper" in render(rows.record())


def test_a_folder_of_images_is_a_pool(home, tmp_path, digits):
    from PIL import Image

    from obrs.experiments.image_pools import outside_pool

    images, _ = digits.propose(np.arange(3))
    for number, image in enumerate(images):
        Image.fromarray(((image[0].numpy() + 1) * 127.5).round().astype(np.uint8)).save(tmp_path / f"{number}.png")
    pool = outside_pool(str(tmp_path), 3, 10, 18, progress=False)
    np.testing.assert_allclose(pool.images, images, atol=1 / 127)
    assert (pool.labels, pool.early) == (None, {})
    with pytest.raises(InputError, match=r"has 3 images, the pool needs 4; say --pool 3"):
        outside_pool(str(tmp_path), 4, 10, 18, progress=False)
    with pytest.raises(InputError, match="source must be a folder of images, or one that"):
        outside_pool(str(tmp_path / "nothing"), 4, 10, 18, progress=False)


def test_a_pool_is_made_once_and_then_read(tmp_path, digits):
    made = cached_pool(tmp_path / "pool.npz", lambda: make_pool(digits, 5, [3], progress=False))
    again = cached_pool(tmp_path / "pool.npz", lambda: pytest.fail("made again"))
    np.testing.assert_array_equal(made.images, again.images)
    np.testing.assert_array_equal(made.labels, again.labels)
    np.testing.assert_array_equal(made.early[3], again.early[3])


def test_an_interrupted_run_finds_its_pool_and_leaves_none_behind(tmp_path, monkeypatch):
    from obrs.experiments import image_pools, runner

    changes = {"ratios": (0, 1), "drawn": 0, "pool": 520, "shown": 0, "steps": 3}
    real, calls = image_pools.make_pool, []

    def counted(*args, **options):
        calls.append(1)
        return real(*args, **options)

    def stops(config, material, seed, progress):
        if seed == 1:
            raise KeyboardInterrupt
        return whole(config, material, seed, progress)

    whole = table._one_ratio
    monkeypatch.setattr(image_pools, "make_pool", counted)
    monkeypatch.setattr(table, "_one_ratio", stops)
    with pytest.raises(KeyboardInterrupt):
        runner.reproduce_files("table-diffusion", "smoke", changes, out=tmp_path, progress=False)
    monkeypatch.setattr(table, "_one_ratio", whole)
    runner.reproduce_files("table-diffusion", "smoke", changes, out=tmp_path, progress=False)
    assert len(calls) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["table-diffusion.json", "table-diffusion.png"]


def test_the_papers_preset_has_the_papers_sizes():
    paper = table.PRESETS["paper"]
    assert (paper.second, paper.rates, paper.sampler, paper.size) == ("inception_v3", (0.75, 0.5, 0.25), 18, 32)
    assert [cell["fid"] for cell in table.PAPER["rows"].values()] == [1.97, 1.77, 1.58, 1.57]


def test_images_of_another_size_and_another_architecture_are_refused(home, tmp_path):
    with pytest.raises(InputError, match=r"images of 8x8 cannot be shrunk to 5x5"):
        shrunk(np.zeros((1, 1, 8, 8)), 5)
    rows = Rows(Record("table-diffusion", "paper", {}, []), progress=False)
    with np.load(home / "mine.npz") as mine:
        large = {key: np.kron(x, np.ones((1, 1, 2, 2))) if x.ndim == 4 else x for key, x in mine.items()}
    np.savez(tmp_path / "large.npz", **large)
    with pytest.raises(InputError, match=r"pipe makes images of shape \(1, 8, 8\), the real ones have \(1, 16, 16\)"):
        table.run(small(source=str(home / "pipe"), real=str(tmp_path / "large.npz"), size=16), rows)
    committed = load_diffusion.__globals__["HOME"] / "digits-8-0-2500-diffusion.safetensors"
    tensors, facts = read_tensors(committed, "it")
    facts["spec"]["width"] = 8
    write_tensors(tmp_path / committed.name, tensors, facts)
    with pytest.raises(InputError, match=r"made by another denoiser: time.0.weight has shape \(64, 64\) there and"):
        load_diffusion("digits", 8, 0, 2500, home=str(tmp_path))


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(InputError, match="there is no digits-8-7-9-diffusion; there are: digits-8-0-2500-diffusion"):
        load_diffusion("digits", 8, 7, 9)
    with pytest.raises(UnknownNameError, match="unknown data set of the diffusion models 'mnis'"):
        train_diffusion("mnis", 14, 0, 9, tmp_path)
    with pytest.raises(InputError, match="rates must be between 0 and 1"):
        small(rates=(1.0,))
    with pytest.raises(InputError, match="a pipeline or a folder shows no previews"):
        small(early=("1",))
    for wrong in ("x", "12+9", "1+2+3", "18"):
        with pytest.raises(InputError, match="early"):
            replace(table.Config(), early=(wrong,))
    with pytest.raises(InputError, match="costs must be above 1"):
        replace(table.Config(), costs=(0.5,))
    rows = Rows(Record("table-diffusion", "paper", {}, []), progress=False)
    with pytest.raises(InputError, match=r"real must be an \.npz with train and test, got mine"):
        table.run(small(real="mine"), rows)
    with pytest.raises(InputError, match=r"there is no .*nothing.npz; it must hold train and test"):
        table.run(small(real=str(tmp_path / "nothing.npz")), rows)
