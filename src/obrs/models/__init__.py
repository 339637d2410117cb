"""Small networks for refits, judges and examples."""

from ..errors import MissingLibraryError

__all__: list[str] = []

try:
    import torch as _  # noqa: F401
except ImportError as error:
    raise MissingLibraryError("obrs.models needs torch: pip install 'obrs[torch]'") from error
