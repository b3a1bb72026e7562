"""A simulated accelerator without torch's help: streams are threads, and its memory is the CPU's, which only streams may touch."""

import contextlib
import queue
import threading
import time

import torch
from strandway_torch import operations

_here = threading.local()


class Event:
    """Comes when its stream does."""

    def __init__(self):
        self.come = threading.Event()

    def synchronize(self):
        self.come.wait()

    def query(self):
        return self.come.is_set()


class Stream:
    """Does what it is given, one after the other."""

    def __init__(self):
        self.jobs = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.jobs.get()()

    def record(self):
        event = Event()
        self.jobs.put(event.come.set)
        return event

    def synchronize(self):
        self.record().synchronize()


class FakeDevice:
    """Stands for `strandway_torch.devices.Device`. `log` has the directions of its copies, in order."""

    device = torch.device("cpu")

    def __init__(self, out=0.0, back=None):
        """A copy from the device takes `out` seconds. Copies to it wait for the event `back`, if there is one."""
        self.default, self.out, self.back, self.log = Stream(), out, back, []
        self.memory, self.lent, self.pinned_bytes = set(), [], []

    def install(self):
        """From now on the backend takes tensors of this device as those of an accelerator."""
        original = operations.device_of

        def device_of(tensors):
            mine = [tensor.untyped_storage().data_ptr() in self.memory for tensor in tensors]
            return self if any(mine) else original(tensors)

        operations.device_of = device_of
        return self

    def tensor(self, value):
        """A tensor of the device."""
        tensor = torch.as_tensor(value).clone()
        self.memory.add(tensor.untyped_storage().data_ptr())
        return tensor

    def run(self, kernel, *arguments):
        """The caller's stream does this."""
        self.current().jobs.put(lambda: kernel(*arguments))

    def current(self):
        return getattr(_here, "stream", self.default)

    def stream(self):
        return Stream()

    def record(self):
        return self.current().record()

    def wait(self, event):
        self.current().jobs.put(event.synchronize)

    @contextlib.contextmanager
    def use(self, stream):
        before, _here.stream = self.current(), stream
        yield
        _here.stream = before

    def pinned(self, count):
        self.pinned_bytes.append(count)
        return torch.full((count,), 255, dtype=torch.uint8)

    def copy(self, target, source):
        way = "back" if target.untyped_storage().data_ptr() in self.memory else "out"

        def kernel():
            if way == "out":
                time.sleep(self.out)
            elif self.back is not None:
                self.back.synchronize()
            target.copy_(source)
            self.log.append(way)

        self.run(kernel)

    def record_stream(self, tensor, stream):
        self.lent.append(tensor.untyped_storage().data_ptr())

    def read(self, tensor):
        """The numbers of a tensor when the caller's stream comes to it; waits for it."""
        found = []
        self.run(lambda: found.append(tensor.clone()))
        self.current().synchronize()
        return found[0]
