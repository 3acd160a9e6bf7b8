// Devices, streams, events, generators: the interface that PyTorch's device-neutral code expects of a CUDA device.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "memory.h"

namespace emulated {

inline int checked_gpu(int64_t index) {
  TORCH_CHECK(machine().gpus > 0, "No HIP GPUs are available");
  if (index == -1) {
    return current_gpu();
  }
  TORCH_CHECK(
      index >= 0 && index < machine().gpus,
      "HIP error: invalid device ordinal: cuda:", index, " was requested, the emulated machine has ", machine().gpus,
      " GPUs (cuda:0 to cuda:", machine().gpus - 1, ")");
  return static_cast<int>(index);
}

inline at::Device cuda(int gpu) {
  return {at::kCUDA, static_cast<c10::DeviceIndex>(gpu)};
}

inline std::array<c10::StreamId, kMaxGpus>& current_streams() {
  thread_local std::array<c10::StreamId, kMaxGpus> streams{};
  return streams;
}

// Returns a new stream of HIP.
inline void* (*create_stream)(int gpu, int priority) = nullptr;

inline c10::StreamId new_stream_id(int gpu, int priority) {
  // The lowest bit is 1 for high priority, since the id must carry it; HIP's streams are aligned, so theirs is 0.
  return reinterpret_cast<c10::StreamId>(create_stream(gpu, priority)) | (priority < 0 ? 1 : 0);
}

inline double now_milliseconds() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Whether a graph is being captured; set by graph.h.
inline std::atomic<bool>& capturing() {
  static std::atomic<bool> value{false};
  return value;
}

// In torch 2.6 a guard's getStream and exchangeStream are noexcept: an exception there would end the process.
inline constexpr bool kStreamsMayThrow =
    !noexcept(std::declval<const c10::impl::DeviceGuardImplInterface&>().getStream(std::declval<at::Device>()));

inline int gpu_of_stream(int64_t index) {
  if constexpr (kStreamsMayThrow) {
    return checked_gpu(index);
  }
  return index >= 0 && index < machine().gpus ? static_cast<int>(index) : current_gpu();
}

// Every operator has ended when it returns, so streams are always idle and an event is a time.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override {
    return at::kCUDA;
  }
  at::Device exchangeDevice(at::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  at::Device getDevice() const override {
    return cuda(current_gpu());
  }
  void setDevice(at::Device device) const override {
    current_gpu() = checked_gpu(device.index());
  }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < machine().gpus) {
      current_gpu() = device.index();
    }
  }
  c10::Stream getStream(at::Device device) const noexcept(!kStreamsMayThrow) override {
    const int gpu = gpu_of_stream(device.index());
    return c10::Stream(c10::Stream::UNSAFE, cuda(gpu), current_streams()[gpu]);
  }
  c10::Stream getDefaultStream(at::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, cuda(checked_gpu(device.index())), 0);
  }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool high = false) const override {
    return getNewStream(device, high ? -1 : 0);
  }
  c10::Stream getNewStream(at::Device device, int priority = 0) const override {
    const int gpu = checked_gpu(device.index());
    return c10::Stream(c10::Stream::UNSAFE, cuda(gpu), new_stream_id(gpu, priority));
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept(!kStreamsMayThrow) override {
    auto& place = current_streams()[gpu_of_stream(stream.device_index())];
    c10::Stream before(c10::Stream::UNSAFE, stream.device(), place);
    place = stream.id();
    return before;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<double*>(event);
  }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) {
      *event = new double(0);
    }
    *static_cast<double*>(*event) = now_milliseconds();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    TORCH_CHECK(from && to, "Both events must be recorded before calculating elapsed time.");
    return *static_cast<double*>(to) - *static_cast<double*>(from);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(machine().gpus);
  }
  bool queryStream(const c10::Stream&) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};

// Random numbers are those of the CPU generator with the same seed.
struct Generator final : c10::GeneratorImpl {
  Generator(int gpu, uint64_t seed)
      : c10::GeneratorImpl(cuda(gpu), c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        inner(at::detail::createCPUGenerator(seed)) {}
  void set_current_seed(uint64_t seed) override {
    inner.set_current_seed(seed);
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override {
    offset_ = offset;
  }
  uint64_t get_offset() const override {
    return offset_;
  }
  uint64_t current_seed() const override {
    return inner.current_seed();
  }
  uint64_t seed() override {
    return inner.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    inner.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return inner.unsafeGetGeneratorImpl()->get_state();
  }

  at::Generator inner;

 private:
  Generator* clone_impl() const override {
    auto* copy = new Generator(device_.index(), 0);
    copy->inner = inner.clone();
    return copy;
  }
  uint64_t offset_ = 0;
};

inline const at::Generator& default_generator(int64_t index) {
  static auto* generators = [] {
    auto* all = new std::vector<at::Generator>();
    for (int gpu = 0; gpu < machine().gpus; ++gpu) {
      all->push_back(at::make_generator<Generator>(gpu, c10::default_rng_seed_val));
    }
    return all;
  }();
  return generators->at(checked_gpu(index));
}

inline std::function<int(uint64_t)>& gpu_of_address() {
  static std::function<int(uint64_t)> function;
  return function;
}

struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  // Without "override": torch 2.6 does not have these two.
  bool isBuilt() const {
    return true;
  }
  bool isAvailable() const {
    return machine().gpus > 0;
  }
  bool hasCUDA() const override {
    return true;
  }
  bool hasROCM() const override {
    return true;
  }
  bool hasCUDART() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  int getNumGPUs() const override {
    return machine().gpus;
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(machine().gpus);
  }
  c10::DeviceIndex current_device() const override {
    return static_cast<c10::DeviceIndex>(current_gpu());
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_gpu());
  }
  void setCurrentDevice(c10::DeviceIndex gpu) const override {
    current_gpu() = checked_gpu(gpu);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex gpu) const override {
    const int before = current_gpu();
    current_gpu() = checked_gpu(gpu);
    return static_cast<c10::DeviceIndex>(before);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex gpu) const override {
    return gpu < 0 ? static_cast<c10::DeviceIndex>(current_gpu()) : exchangeDevice(gpu);
  }
  void deviceSynchronize(c10::DeviceIndex gpu) const override {
    checked_gpu(gpu);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex gpu = -1) const override {
    return default_generator(gpu);
  }
  at::Generator getNewGenerator(c10::DeviceIndex gpu = -1) const override {
    return at::make_generator<Generator>(checked_gpu(gpu), c10::default_rng_seed_val);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    if (PinnedMemory::instance()->contains(data)) {
      return cuda(current_gpu());
    }
    const int gpu = gpu_of_address()(reinterpret_cast<uint64_t>(data));
    TORCH_CHECK(
        gpu >= 0, "The pointer ", data, " is not memory of an emulated GPU: allocate it with hipMalloc or with torch,"
        " or register host memory with hipHostRegister");
    return cuda(gpu);
  }
  bool isPinnedPtr(const void* data) const override {
    return PinnedMemory::instance()->contains(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return PinnedMemory::instance();
  }
  at::Allocator* getCUDADeviceAllocator() const override {
    return DeviceAllocator::instance();
  }
  std::string showConfig() const override {
    return "  - emulated HIP device\n";
  }
  int64_t cuFFTGetPlanCacheMaxSize(c10::DeviceIndex) const override {
    return 4096;
  }
  void cuFFTSetPlanCacheMaxSize(c10::DeviceIndex, int64_t) const override {}
  int64_t cuFFTGetPlanCacheSize(c10::DeviceIndex) const override {
    return 0;
  }
  void cuFFTClearPlanCache(c10::DeviceIndex) const override {}
};

}  // namespace emulated

namespace emulated {

// Importing torch already requests the hooks, and PyTorch keeps the first result, so the object is replaced in its place.
inline void replace_hooks() {
  static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface));
  auto& hooks = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  new (&hooks) Hooks();
}

}  // namespace emulated
