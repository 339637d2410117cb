import pytest


@pytest.fixture(scope="module")
def one_thread():
    """Small networks train faster on one thread than on several."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
