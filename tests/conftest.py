import importlib
import signal

import pytest
from hypothesis import Phase, settings

# A suite in the background of a shell ignores Ctrl-C, and so would the processes in which tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run: a failure is a change. For a planted fault the first failure will do.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("first", settings.get_profile("fixed"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("fixed")


@pytest.fixture(params=["numpy", "torch", "jax.numpy", "array_api_strict"])
def xp(request):
    """Each array backend, at double precision; absent ones are skipped."""
    module = pytest.importorskip(request.param)
    if request.param == "jax.numpy":
        import jax

        jax.config.update("jax_enable_x64", True)
    return module


@pytest.fixture
def single_precision_jax():
    """JAX as most people run it: without float64."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", False)
    yield importlib.import_module("jax.numpy")
    jax.config.update("jax_enable_x64", True)
