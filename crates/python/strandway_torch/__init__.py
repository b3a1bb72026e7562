"""The backend `strandway` of `torch.distributed`; `import torch` finds it by an entry point."""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Called by `import torch`: it is quick, starts nothing, and does not fail."""
    try:
        import torch.distributed as dist

        if dist.is_available() and "strandway" not in dist.Backend.backend_list:
            dist.Backend.register_backend("strandway", _create, extended_api=True, devices=["cpu"])
    except Exception as error:
        import warnings

        warnings.warn(f"the backend strandway is not registered: {error}", stacklevel=2)


def _create(options: object, backend_options: object) -> object:
    from .backend import create

    return create(options, backend_options)
