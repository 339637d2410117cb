"""Entry point of `obrs` and `python -m obrs`; names the missing extra if there is one."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line."""
    try:
        from .cli import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: the obrs command needs {error.name}: pip install 'obrs[cli]'\n")
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
