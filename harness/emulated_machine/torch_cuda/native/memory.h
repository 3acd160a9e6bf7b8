// The caching allocator of the emulated GPUs: blocks out of segments that the emulated HIP runtime gives.
//
// Sizes follow PyTorch's own caching allocator: requests are rounded to 512 bytes; up to 1 MiB they come from segments of
// 2 MiB, up to 10 MiB from segments of 20 MiB, and larger ones have a segment of their own, rounded to 2 MiB.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace emulated {

constexpr int kMaxGpus = 64;

// Runs without the lock of the allocator held: both functions may enter Python.
using AllocateSegment = uint64_t (*)(uint64_t bytes, int device);
using FreeSegment = void (*)(uint64_t address);

struct Machine {
  int gpus = 0;
  uint64_t total_memory = 0;
  AllocateSegment allocate = nullptr;
  FreeSegment free = nullptr;
};

inline Machine& machine() {
  static Machine instance;
  return instance;
}

struct Statistic {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  void add(int64_t amount) {
    current += amount;
    peak = std::max(peak, current);
    (amount >= 0 ? allocated : freed) += std::abs(amount);
  }
};

// Index 0 counts all pools, 1 the small, 2 the large.
using Statistics = std::array<Statistic, 3>;

struct DeviceStatistics {
  std::map<std::string, Statistics> pools;
  Statistic oversize_allocations, oversize_segments;
  int64_t retries = 0, ooms = 0, device_allocations = 0, device_frees = 0;
  double fraction = 1.0;
};

struct Block {
  uint64_t address, size, requested;
  int device;
  bool small, free;
  Block *before = nullptr, *after = nullptr;  // neighbours in the same segment
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
  }
};

inline std::string readable(uint64_t bytes) {
  char text[64];
  const double value = static_cast<double>(bytes);
  if (bytes < 1024) {
    std::snprintf(text, sizeof text, "%llu bytes", static_cast<unsigned long long>(bytes));
  } else if (bytes < (1ULL << 20)) {
    std::snprintf(text, sizeof text, "%.2f KiB", value / 1024);
  } else if (bytes < (1ULL << 30)) {
    std::snprintf(text, sizeof text, "%.2f MiB", value / (1 << 20));
  } else {
    std::snprintf(text, sizeof text, "%.2f GiB", value / (1 << 30));
  }
  return text;
}

class Memory {
 public:
  // Leaked: tensors of the program may be freed after static destructors have run.
  static Memory& instance() {
    static Memory* memory = new Memory();
    return *memory;
  }

  Block* allocate(uint64_t requested, int device) {
    const uint64_t size = (requested + 511) / 512 * 512;
    const bool small = size <= (1 << 20);
    for (bool retried = false;; retried = true) {
      {
        std::lock_guard<std::mutex> guard(mutex_);
        if (Block* block = take(size, device, small)) {
          return used(block, size, requested);
        }
      }
      const uint64_t segment =
          small ? 2 << 20 : size < (10 << 20) ? 20 << 20 : (size + (2 << 20) - 1) / (2 << 20) * (2 << 20);
      uint64_t address = 0;
      if (reserve(segment, device)) {
        address = machine().allocate(segment, device);
        if (!address) {
          unreserve(segment, device);
        }
      }
      if (!address) {
        if (retried) {
          fail(requested, device);
        }
        {
          std::lock_guard<std::mutex> guard(mutex_);
          ++statistics_[device].retries;
        }
        empty_cache();
        continue;
      }
      std::lock_guard<std::mutex> guard(mutex_);
      auto* block = new Block{address, segment, 0, device, small, true};
      ++statistics_[device].device_allocations;
      count(block, "segment", 1);
      count(block, "reserved_bytes", static_cast<int64_t>(segment));
      segments_[address] = segment;
      return used(block, size, requested);
    }
  }

  // Free the block at ``address``; false if there is none.
  bool release(uint64_t address) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto place = used_.find(address);
    if (place == used_.end()) {
      return false;
    }
    Block* block = place->second;
    used_.erase(place);
    for (const char* name : {"allocation", "active"}) {
      count(block, name, -1);
    }
    for (const char* name : {"allocated_bytes", "active_bytes"}) {
      count(block, name, -static_cast<int64_t>(block->size));
    }
    count(block, "requested_bytes", -static_cast<int64_t>(block->requested));
    block->free = true;
    for (Block* other : {block->before, block->after}) {
      if (other && other->free) {
        free_[block->device][block->small].erase(other);
        split_free(other, -1);
        merge(block, other);
      }
    }
    free_[block->device][block->small].insert(block);
    split_free(block, 1);
    return true;
  }

  // Give the segments without a used block back to the HIP runtime.
  void empty_cache() {
    std::vector<uint64_t> addresses;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      for (int device = 0; device < machine().gpus; ++device) {
        for (auto& pool : free_[device]) {
          for (auto place = pool.begin(); place != pool.end();) {
            Block* block = *place;
            if (block->before || block->after) {
              ++place;
              continue;
            }
            place = pool.erase(place);
            ++statistics_[device].device_frees;
            count(block, "segment", -1);
            count(block, "reserved_bytes", -static_cast<int64_t>(block->size));
            reserved_[device] -= block->size;
            segments_.erase(block->address);
            addresses.push_back(block->address);
            delete block;
          }
        }
      }
    }
    for (uint64_t address : addresses) {
      machine().free(address);
    }
  }

  DeviceStatistics statistics(int device) {
    std::lock_guard<std::mutex> guard(mutex_);
    return statistics_[device];
  }

  void reset(int device, bool peak) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto& all = statistics_[device];
    for (auto& [name, pools] : all.pools) {
      for (auto& each : pools) {
        reset(each, peak);
      }
    }
    reset(all.oversize_allocations, peak);
    reset(all.oversize_segments, peak);
    if (!peak) {
      all.retries = all.ooms = all.device_allocations = all.device_frees = 0;
    }
  }

  void set_fraction(int device, double fraction) {
    std::lock_guard<std::mutex> guard(mutex_);
    statistics_[device].fraction = fraction;
  }

  // Address and size of the used block that holds ``address``; zeros if none does.
  std::pair<uint64_t, uint64_t> block_at(uint64_t address) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto next = used_.upper_bound(address);
    if (next == used_.begin()) {
      return {0, 0};
    }
    const Block* block = std::prev(next)->second;
    return address - block->address < block->requested ? std::pair(block->address, block->requested)
                                                        : std::pair<uint64_t, uint64_t>(0, 0);
  }

  // Whether ``address`` lies in memory that torch has from the HIP runtime, used or free.
  bool in_segment(uint64_t address) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto next = segments_.upper_bound(address);
    return next != segments_.begin() && address - std::prev(next)->first < std::prev(next)->second;
  }

  std::vector<std::pair<uint64_t, uint64_t>> segments() {
    std::lock_guard<std::mutex> guard(mutex_);
    return {segments_.begin(), segments_.end()};
  }

 private:
  static void reset(Statistic& each, bool peak) {
    if (peak) {
      each.peak = each.current;
    } else {
      each.allocated = each.freed = 0;
    }
  }

  Block* take(uint64_t size, int device, bool small) {
    auto& pool = free_[device][small];
    Block wanted{0, size, 0, device, small, true};
    auto place = pool.lower_bound(&wanted);
    if (place == pool.end() || (!small && (*place)->size > size + (20 << 20) && size >= (10 << 20))) {
      return nullptr;
    }
    Block* block = *place;
    pool.erase(place);
    split_free(block, -1);
    return block;
  }

  Block* used(Block* block, uint64_t size, uint64_t requested) {
    const uint64_t rest = block->size - size;
    if (block->small ? rest >= 512 : rest > (1 << 20)) {
      auto* other = new Block{block->address + size, rest, 0, block->device, block->small, true, block, block->after};
      if (block->after) {
        block->after->before = other;
      }
      block->after = other;
      block->size = size;
      free_[block->device][block->small].insert(other);
      split_free(other, 1);
    }
    block->free = false;
    block->requested = requested;
    used_[block->address] = block;
    for (const char* name : {"allocation", "active"}) {
      count(block, name, 1);
    }
    for (const char* name : {"allocated_bytes", "active_bytes"}) {
      count(block, name, static_cast<int64_t>(block->size));
    }
    count(block, "requested_bytes", static_cast<int64_t>(requested));
    return block;
  }

  void merge(Block* block, Block* other) {
    if (other == block->before) {
      block->address = other->address;
      block->before = other->before;
      if (block->before) {
        block->before->after = block;
      }
    } else {
      block->after = other->after;
      if (block->after) {
        block->after->before = block;
      }
    }
    block->size += other->size;
    delete other;
  }

  void count(const Block* block, const char* name, int64_t amount) {
    auto& pools = statistics_[block->device].pools[name];
    pools[0].add(amount);
    pools[block->small ? 1 : 2].add(amount);
  }

  void split_free(const Block* block, int sign) {
    if (block->before || block->after) {
      count(block, "inactive_split", sign);
      count(block, "inactive_split_bytes", sign * static_cast<int64_t>(block->size));
    }
  }

  bool reserve(uint64_t bytes, int device) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto limit = static_cast<uint64_t>(
        static_cast<double>(machine().total_memory) * statistics_[device].fraction);
    if (bytes > limit || reserved_[device] > limit - bytes) {
      return false;
    }
    reserved_[device] += bytes;
    return true;
  }

  void unreserve(uint64_t bytes, int device) {
    std::lock_guard<std::mutex> guard(mutex_);
    reserved_[device] -= bytes;
  }

  [[noreturn]] void fail(uint64_t requested, int device) {
    uint64_t reserved, allocated;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      ++statistics_[device].ooms;
      reserved = reserved_[device];
      allocated = static_cast<uint64_t>(statistics_[device].pools["allocated_bytes"][0].current);
    }
    C10_THROW_ERROR(
        OutOfMemoryError,
        "HIP out of memory. Tried to allocate " + readable(requested) + ". GPU " + std::to_string(device) +
            " has a total capacity of " + readable(machine().total_memory) + " of which " +
            readable(machine().total_memory - reserved) + " is free. Of the allocated memory " + readable(allocated) +
            " is allocated by PyTorch, and " + readable(reserved - allocated) +
            " is reserved by PyTorch but unallocated.");
  }

  std::mutex mutex_;
  std::array<std::array<std::set<Block*, BySize>, 2>, kMaxGpus> free_;
  std::array<uint64_t, kMaxGpus> reserved_{};
  std::array<DeviceStatistics, kMaxGpus> statistics_;
  std::map<uint64_t, uint64_t> segments_;
  std::map<uint64_t, Block*> used_;
};

inline void release_block(void* data) {
  Memory::instance().release(reinterpret_cast<uint64_t>(data));
}

inline bool is_device_memory(const at::DataPtr& data) {
  return data.get_deleter() == &release_block;
}

inline at::DataPtr allocate_on(uint64_t bytes, int gpu, at::Device label) {
  if (bytes == 0) {
    return {nullptr, label};
  }
  Block* block = Memory::instance().allocate(bytes, gpu);
  void* data = reinterpret_cast<void*>(block->address);
  return {data, data, &release_block, label};
}

// HIP's current device of the calling thread: hipSetDevice and torch.cuda.set_device change the same number.
inline int* (*device_of_thread)() = nullptr;

inline int& current_gpu() {
  return *device_of_thread();
}

struct DeviceAllocator final : at::Allocator {
  at::DataPtr allocate(size_t bytes) override {
    return allocate_on(bytes, current_gpu(), at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(current_gpu())));
  }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }
  static DeviceAllocator* instance() {
    static auto* allocator = new DeviceAllocator();
    return allocator;
  }
};

// The GPU whose memory the CPU kernels of this thread allocate their results in; -1: the CPU's own memory.
inline thread_local int redirected_to = -1;

struct Redirect {
  explicit Redirect(int gpu) : before_(redirected_to) {
    redirected_to = gpu;
  }
  ~Redirect() {
    redirected_to = before_;
  }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

 private:
  int before_;
};

// CPU allocator that gives memory of an emulated GPU while an operator of that GPU runs.
struct RedirectingAllocator final : at::Allocator {
  explicit RedirectingAllocator(at::Allocator* before) : cpu(before) {}
  at::DataPtr allocate(size_t bytes) override {
    return redirected_to < 0 ? cpu->allocate(bytes) : allocate_on(bytes, redirected_to, at::Device(at::kCPU));
  }
  // What a kernel allocates raw may be freed when no operator runs, and the other way round.
  at::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }
  at::Allocator* cpu;
};

inline RedirectingAllocator*& redirecting() {
  static RedirectingAllocator* allocator = nullptr;
  return allocator;
}

inline void release_raw(void* data) {
  if (data && !Memory::instance().release(reinterpret_cast<uint64_t>(data))) {
    redirecting()->cpu->raw_deleter()(data);
  }
}

inline at::DeleterFnPtr RedirectingAllocator::raw_deleter() const {
  return &release_raw;
}

// Page-locked host memory: ordinary memory whose addresses are remembered for is_pinned().
class PinnedMemory final : public at::Allocator {
 public:
  static PinnedMemory* instance() {
    static auto* memory = new PinnedMemory();
    return memory;
  }
  at::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes ? bytes : 1);
    std::lock_guard<std::mutex> guard(mutex_);
    ranges_[reinterpret_cast<uint64_t>(data)] = bytes ? bytes : 1;
    return {data, data, &release, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }
  bool contains(const void* pointer) {
    return left(pointer) != 0;
  }
  // Number of bytes from ``pointer`` to the end of the allocation that holds it; 0 if none does.
  uint64_t left(const void* pointer) {
    const auto address = reinterpret_cast<uint64_t>(pointer);
    std::lock_guard<std::mutex> guard(mutex_);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) {
      return 0;
    }
    const uint64_t end = std::prev(after)->first + std::prev(after)->second;
    return address < end ? end - address : 0;
  }

 private:
  static void release(void* data) {
    {
      std::lock_guard<std::mutex> guard(instance()->mutex_);
      instance()->ranges_.erase(reinterpret_cast<uint64_t>(data));
    }
    c10::free_cpu(data);
  }
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> ranges_;
};

}  // namespace emulated
