"""Storages of emulated GPUs: resize, serialization's new storages, and memory shared with other processes."""

from __future__ import annotations

import os
from typing import Any

import torch

from . import segments


def install(native: Any, memory: Any) -> None:
    """Replace the methods of storages that the CPU build of torch has without their CUDA part."""
    storage: Any = torch.UntypedStorage
    base_new, base_resize = storage.__new__, storage.resize_

    def new(cls: Any, *arguments: Any, device: Any = None, **options: Any) -> Any:
        wanted = torch.device(device) if device is not None else None
        if wanted is None or wanted.type != "cuda":
            return base_new(cls, *arguments, **({} if device is None else {"device": device}), **options)
        source = arguments[0] if arguments else 0
        if isinstance(source, int):
            return torch.empty(source, dtype=torch.uint8, device=wanted).untyped_storage()
        return torch.tensor(list(source), dtype=torch.uint8, device=wanted).untyped_storage()

    def resize(self: Any, size: int) -> Any:
        if self.device.type != "cuda":
            return base_resize(self, size)
        native.resize_storage(torch.empty(0, dtype=torch.uint8, device=self.device).set_(self), size)
        return self

    def share(self: Any) -> Any:
        """Return what ``_new_shared_cuda`` needs in the receiving process."""
        path, size, offset = memory.share(self.data_ptr()) if self.nbytes() else ("", 0, 0)
        handle = f"{memory.place_of(self.device.index)} {path}".encode()
        return self.device.index, handle, self.nbytes(), offset, b"", size, b"", False

    def new_shared(
        cls: Any, device: int, handle: bytes, nbytes: int, offset: int, _counter: bytes, size: int, *_: Any
    ) -> Any:
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8, device=f"cuda:{device}").untyped_storage()
        place, _space, path = handle.decode(errors="replace").partition(" ")
        if not place.isdigit() or not path:
            raise RuntimeError(f"HIP error: invalid argument: {handle!r} is not a handle of memory on this machine")
        mapping = Mapping(path, size, offset, nbytes)
        mapping.announce(memory, device, int(place), nbytes)
        return native.storage_tensor(mapping.address + offset, nbytes, device, mapping).untyped_storage()

    storage.__new__ = staticmethod(new)
    storage.resize_ = resize
    storage._share_cuda_ = share
    storage._new_shared_cuda = classmethod(new_shared)
    storage._release_ipc_counter_cuda = classmethod(lambda cls, *_, **__: None)


def export(memory: Any, address: int, nbytes: int) -> bytes:
    """Describe memory of this process for ``attach`` in another process of the same user."""
    path, size, offset = memory.share(address)
    return f"{nbytes} {size} {offset} {path}".encode()


def attach(memory: Any, description: bytes, device: int, peer: int) -> Mapping:
    """Map memory that another rank described; ``memory`` lists it as memory of ``peer`` as long as it is mapped."""
    _, size, offset, path = description.decode().split(" ", 3)
    mapping = Mapping(path, int(size), int(offset))
    mapping.announce(memory, device, peer, mapping.size - mapping.offset)
    return mapping


def _is_memory(descriptor: int, size: int) -> bool:
    """Return whether an open file is memory of an emulated GPU with at least ``size`` bytes."""
    name = os.readlink(f"/proc/self/fd/{descriptor}")
    return name.startswith("/memfd:hip:") and 0 < size <= os.fstat(descriptor).st_size


class Mapping:
    """Memory of another process, mapped here until this object is dropped."""

    def __init__(self, path: str, size: int, offset: int = 0, nbytes: int = 0) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            # A page that the file does not have would end the process at its first access.
            if not _is_memory(descriptor, size) or not 0 <= offset <= offset + nbytes <= size:
                raise RuntimeError(
                    f"HIP error: invalid argument: {path} is not memory of an emulated GPU with {size} bytes, and"
                    f" {nbytes} of them at offset {offset}"
                )
            self.address = segments.map_descriptor(descriptor, size)
        finally:
            os.close(descriptor)
        self.size, self.offset = size, offset
        self._memory: Any = None

    def announce(self, memory: Any, device: int, peer: int, nbytes: int) -> None:
        """List ``nbytes`` from the offset on among the regions that kernels may access."""
        self._memory = memory
        memory.add_peer(self.address + self.offset, nbytes, device, peer)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            if self._memory is not None:
                self._memory.remove_peer(self.address + self.offset)
            segments.unmap(self.address, self.size)
