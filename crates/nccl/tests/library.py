"""How far the real NCCL comes with the plug-in on this host: `python crates/nccl/tests/library.py libnccl.so.2`.

The plug-in must be found by the loader (`LD_LIBRARY_PATH`), as docs/movers.md says. Without a GPU NCCL stops before it looks for plug-ins.
"""

import ctypes
import os
import sys


class UniqueId(ctypes.Structure):
    """The bytes that ranks share."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


def main():
    """Makes a communicator of one rank, and prints how each call ended."""
    settings = {"NCCL_DEBUG": "INFO", "NCCL_NET_PLUGIN": "strandway", "NCCL_NET": "Strandway", "STRANDWAY_KEY": "00" * 32}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    nccl = ctypes.CDLL(sys.argv[1])
    nccl.ncclGetErrorString.restype = nccl.ncclGetLastError.restype = ctypes.c_char_p
    version, one, comm = ctypes.c_int(), UniqueId(), ctypes.c_void_p()
    nccl.ncclGetVersion(ctypes.byref(version))
    print("NCCL", version.value)
    for name, call in (
        ("ncclGetUniqueId", lambda: nccl.ncclGetUniqueId(ctypes.byref(one))),
        ("ncclCommInitRank", lambda: nccl.ncclCommInitRank(ctypes.byref(comm), 1, one, 0)),
    ):
        code = call()
        print(f"{name}: {nccl.ncclGetErrorString(code).decode()}", (nccl.ncclGetLastError(None) or b"").decode())


if __name__ == "__main__":
    main()
