// Checks of cuda tensors over memory that torch did not allocate: __cuda_array_interface__, DLPack, at::from_blob.
#pragma once

#include <functional>
#include <string>

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include "device.h"

namespace emulated {

// Keeps the owner of memory that the machine's own code mapped. Such memory needs no check.
inline void release_owner(void* owner) {
  pybind11::gil_scoped_acquire gil;
  delete static_cast<pybind11::object*>(owner);
}

// The function of HIP that returns how many accessible bytes begin at an address.
inline size_t (*accessible_bytes)(void* address) = nullptr;

// Returns why the bytes at an address cannot be accessed; empty if they can. It calls Python, so it is slow.
inline std::function<std::string(uint64_t address, uint64_t bytes)>& obstacle_in_memory() {
  static std::function<std::string(uint64_t, uint64_t)> function;
  return function;
}

inline std::string obstacle(uint64_t address, uint64_t bytes) {
  const auto [start, size] = Memory::instance().block_at(address);
  if (size != 0) {
    const uint64_t left = start + size - address;
    return bytes <= left ? "" : "torch's allocation there ends after " + std::to_string(left) + " bytes";
  }
  if (Memory::instance().in_segment(address)) {
    return "torch's allocation there was freed";
  }
  if (accessible_bytes(reinterpret_cast<void*>(address)) >= bytes ||
      PinnedMemory::instance()->left(reinterpret_cast<void*>(address)) >= bytes) {
    return "";
  }
  return obstacle_in_memory()(address, bytes);
}

// Throws if a CPU kernel could not access the tensor's memory: the process would end without a message.
inline void check_memory(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  const auto deleter = storage.data_ptr().get_deleter();
  // The storage of a tensor without memory, such as one of torch.compile, is not on the GPU.
  if (!storage.device().is_cuda() || storage.nbytes() == 0 || deleter == &release_block || deleter == &release_owner) {
    return;
  }
  const auto problem = obstacle(reinterpret_cast<uint64_t>(storage.data()), storage.nbytes());
  TORCH_CHECK(
      problem.empty(), "HIP error: an illegal memory access was encountered\nThe memory of the ", tensor.device(),
      " tensor of shape ", tensor.sizes(), " is ", storage.nbytes(), " bytes at ", storage.data(), ", and ", problem,
      ". Pass memory of torch, hipMalloc, hipHostMalloc or hipHostRegister that holds all of these bytes, and keep it"
      " allocated as long as the tensor exists");
}

}  // namespace emulated
