// Python module of the emulated GPUs. The headers next to this file are its parts, compiled as one unit.
#include <torch/csrc/Generator.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "operators.h"

namespace py = pybind11;
using namespace emulated;

namespace {

py::dict describe(const Statistic& each) {
  py::dict result;
  result["current"] = each.current;
  result["peak"] = each.peak;
  result["allocated"] = each.allocated;
  result["freed"] = each.freed;
  return result;
}

py::dict memory_statistics(int64_t index) {
  auto all = Memory::instance().statistics(checked_gpu(index));
  py::dict result;
  for (const char* name :
       {"allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
        "inactive_split_bytes", "requested_bytes"}) {
    const auto& pools = all.pools[name];
    py::dict entry;
    entry["all"] = describe(pools[0]);
    entry["small_pool"] = describe(pools[1]);
    entry["large_pool"] = describe(pools[2]);
    result[name] = entry;
  }
  result["oversize_allocations"] = describe(all.oversize_allocations);
  result["oversize_segments"] = describe(all.oversize_segments);
  result["num_alloc_retries"] = all.retries;
  result["num_ooms"] = all.ooms;
  result["max_split_size"] = -1;
  result["num_sync_all_streams"] = 0;
  result["num_device_alloc"] = all.device_allocations;
  result["num_device_free"] = all.device_frees;
  return result;
}

// A tensor over memory that the program owns; ``owner`` is kept alive with it.
at::Tensor tensor_at(uint64_t address, std::vector<int64_t> size, std::vector<int64_t> stride, at::ScalarType type,
                     int gpu, py::object owner) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (size_t i = 0; i < size.size(); ++i) {
    bytes += (size[i] - 1) * stride[i] * static_cast<int64_t>(c10::elementSize(type));
  }
  auto* context = new py::object(std::move(owner));
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes),
      at::DataPtr(
          reinterpret_cast<void*>(address), context, &release_owner, cuda(checked_gpu(gpu))),
      nullptr, false);
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::scalarTypeToTypeMeta(type));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return result;
}

// Python objects in a graph are released with the interpreter's lock held.
std::function<void()> call_python(py::object function) {
  auto shared = std::shared_ptr<py::object>(new py::object(std::move(function)), [](py::object* object) {
    py::gil_scoped_acquire gil;
    delete object;
  });
  return [shared] {
    py::gil_scoped_acquire gil;
    (*shared)();
  };
}

}  // namespace

namespace c10d {
namespace {

// Times the steps of DistributedDataParallel. Every operator has ended when it returns, so the clock of the CPU suffices.
class MachineTimer final : public Timer {
 public:
  explicit MachineTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto from = getTimestamp(start), to = getTimestamp(end);
    return from && to ? std::optional<int64_t>(*to - *from) : std::nullopt;
  }
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, MachineTimer)

}  // namespace
}  // namespace c10d

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("install", [](int gpus, uint64_t total_memory, uint64_t allocate, uint64_t free) {
    TORCH_CHECK(gpus >= 0 && gpus <= kMaxGpus, "expected 0 to ", kMaxGpus, " GPUs, got ", gpus);
    machine() = {
        gpus, total_memory, reinterpret_cast<AllocateSegment>(allocate), reinterpret_cast<FreeSegment>(free)};
    c10::SetAllocator(at::kCUDA, DeviceAllocator::instance());
    redirecting() = new RedirectingAllocator(c10::GetAllocator(at::kCPU));
    c10::SetAllocator(at::kCPU, redirecting());
    replace_hooks();
    static const c10::impl::DeviceGuardImplRegistrar registrar(at::kCUDA, new Guard());
  });
  module.def("set_gpu_of_address", [](py::function function) {
    gpu_of_address() = [function = new py::function(std::move(function))](uint64_t address) {
      py::gil_scoped_acquire gil;
      return (*function)(address).cast<int>();
    };
  });
  module.def("set_obstacle_in_memory", [](py::function function) {
    obstacle_in_memory() = [function = new py::function(std::move(function))](uint64_t address, uint64_t bytes) {
      py::gil_scoped_acquire gil;
      return (*function)(address, bytes).cast<std::string>();
    };
  });
  module.def("check_memory", [](const at::Tensor& tensor) {
    if (tensor.is_cuda()) {
      check_memory(tensor);
    }
  });
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9
  module.def("refuse_forks", [] { torch::utils::register_fork_handler_for_device_init(at::kCUDA); });
  module.def("in_bad_fork", [] { return torch::utils::is_device_in_bad_fork(at::kCUDA); });
#else  // torch 2.6 does not have these functions: forks are not noticed
  module.def("refuse_forks", [] {});
  module.def("in_bad_fork", [] { return false; });
#endif
  module.def("current_gpu", [] { return current_gpu(); });
  module.def("set_gpu", [](int64_t gpu) { current_gpu() = checked_gpu(gpu); });
  module.def("current_stream", [](int64_t gpu) { return current_streams()[checked_gpu(gpu)]; });
  module.def("set_stream", [](int64_t gpu, int64_t stream) { current_streams()[checked_gpu(gpu)] = stream; });
  module.def("new_stream", [](int priority) { return new_stream_id(current_gpu(), priority); });
  module.def("use_hip", [](uint64_t device_function, uint64_t stream_function, uint64_t accessible_function) {
    device_of_thread = reinterpret_cast<int* (*)()>(device_function);
    create_stream = reinterpret_cast<void* (*)(int, int)>(stream_function);
    accessible_bytes = reinterpret_cast<size_t (*)(void*)>(accessible_function);
  });
  module.def("default_generators", [] {
    std::vector<at::Generator> all;
    for (int gpu = 0; gpu < machine().gpus; ++gpu) {
      all.push_back(default_generator(gpu));
    }
    return all;
  });
  module.def("memory_statistics", &memory_statistics);
  module.def("reset_statistics", [](int64_t gpu, bool peak) { Memory::instance().reset(checked_gpu(gpu), peak); });
  module.def("set_memory_fraction", [](double fraction, int64_t gpu) {
    Memory::instance().set_fraction(checked_gpu(gpu), fraction);
  });
  module.def("empty_cache", [] { Memory::instance().empty_cache(); }, py::call_guard<py::gil_scoped_release>());
  module.def("block_at", [](uint64_t address) { return Memory::instance().block_at(address); });
  module.def("segments", [] { return Memory::instance().segments(); });
  module.def("raw_allocate", [](uint64_t bytes, int64_t gpu) {
    return Memory::instance().allocate(bytes, checked_gpu(gpu))->address;
  });
  module.def("raw_release", [](uint64_t address) {
    TORCH_CHECK(Memory::instance().release(address), "no allocation starts at ", address);
  });
  module.def("tensor_at", &tensor_at);
  module.def("on_cpu", [](const at::Tensor& tensor) { return on_cpu(tensor); });
  module.def("storage_tensor", [](uint64_t address, size_t bytes, int gpu, py::object owner) {
    return tensor_at(address, {static_cast<int64_t>(bytes)}, {1}, at::kByte, gpu, std::move(owner));
  });
  module.def("resize_storage", [](const at::Tensor& of, size_t bytes) {
    resize_storage(of.storage().unsafeGetStorageImpl(), bytes);
  });
  py::class_<Graph, std::shared_ptr<Graph>>(module, "Graph")
      .def(py::init<>())
      .def("begin", [](const std::shared_ptr<Graph>& graph) { begin_capture(graph); })
      .def("replay", &Graph::replay, py::call_guard<py::gil_scoped_release>())
      .def("reset", [](Graph& graph) { graph.nodes.clear(); })
      .def("__len__", [](const Graph& graph) { return graph.nodes.size(); });
  module.def("end_capture", &end_capture);
  module.def("is_capturing", [] { return capturing().load(); });
  module.def("record", [](py::object function) { record_node(call_python(std::move(function))); });
}
