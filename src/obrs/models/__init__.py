"""The few networks that experiments and refits need."""

from ..errors import MissingLibraryError

__all__: list[str] = []

try:
    import torch as _  # noqa: F401
except ImportError as error:
    raise MissingLibraryError("obrs.models needs torch: pip install 'obrs[torch]'") from error
