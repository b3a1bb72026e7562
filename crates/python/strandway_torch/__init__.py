"""The backend `strandway` of `torch.distributed`; `import torch` finds it by an entry point (torch 2.4: `import strandway_torch`)."""

from __future__ import annotations

import contextlib

__all__ = ["register"]


def register() -> None:
    """Called by `import torch`: it is quick, starts nothing, and does not fail.

    Call it again if a package has brought another kind of accelerator since.
    """
    try:
        import torch.distributed as dist

        if not dist.is_available():
            return
        known, devices = "strandway" in dist.Backend.backend_list, ["cpu"]
        # A torch that lacks something gets its sentence when it asks for a group; its other users hear nothing.
        with contextlib.suppress(ImportError):
            from .compat import complete_functions, device_types

            devices = device_types()
            if not known:
                complete_functions()
        if known:
            dist.Backend.backend_capability["strandway"] = devices
            return
        defaults = dict(dist.Backend.default_device_backend_map)
        dist.Backend.register_backend("strandway", _create, extended_api=True, devices=devices)
        # The default of an accelerator is for the package that brings it.
        dist.Backend.default_device_backend_map = defaults
    except Exception as error:
        import warnings

        warnings.warn(f"the backend strandway is not registered: {error}", stacklevel=2)


def _create(options: object, backend_options: object) -> object:
    from .backend import create

    return create(options, backend_options)


# torch looks for entry points since 2.5.
register()
