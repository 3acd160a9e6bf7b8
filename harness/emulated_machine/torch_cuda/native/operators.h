// Operators of cuda tensors: each is called on CPU tensors that share the memory of its arguments.
//
// A cuda tensor is an ordinary tensor with the dispatch key CUDA. Its operators have no CUDA kernels in a CPU build, so
// the dispatcher calls fallback(), which calls the CPU kernel. Results are allocated in the GPU's memory from the start
// (see RedirectingAllocator), so nothing is copied.
#pragma once

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/to_native.h>
#include <ATen/ops/view_native.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "graph.h"
#include "reach.h"

namespace emulated {

using c10::IValue;
using torch::jit::Stack;

struct Alias {
  c10::Storage cuda;
  c10::intrusive_ptr<c10::StorageImpl> cpu;
};
using Aliases = c10::SmallVector<Alias, 4>;

inline void release_storage(void* context) {
  delete static_cast<c10::Storage*>(context);
}

inline c10::intrusive_ptr<c10::StorageImpl> shared_storage(const c10::Storage& cuda) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), cuda.nbytes(),
      at::DataPtr(const_cast<void*>(cuda.data()), new c10::Storage(cuda), &release_storage, at::Device(at::kCPU)),
      redirecting(), true);
}

inline at::Tensor like(const at::Tensor& tensor, c10::Storage storage, c10::DispatchKey key) {
  auto result =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), tensor.dtype());
  auto* impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) {
    impl->_set_conj(true);
  }
  if (tensor.is_neg()) {
    impl->_set_neg(true);
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  return result;
}

inline void check_strided(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == at::kStrided && !tensor.is_quantized(), "emulated machine: ", name,
      ": tensors of layout ", tensor.layout(), tensor.is_quantized() ? " (quantized)" : "",
      " are not supported on the emulated GPU, only dense ones: see docs/emulated-machine-torch.md");
}

// Return the CPU tensor that shares the memory of ``tensor``.
inline at::Tensor on_cpu(const at::Tensor& tensor, Aliases& aliases, const char* name) {
  check_strided(tensor, name);
  const auto& storage = tensor.storage();
  for (const auto& alias : aliases) {
    if (alias.cuda.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      return like(tensor, c10::Storage(alias.cpu), c10::DispatchKey::CPU);
    }
  }
  check_memory(tensor);
  aliases.push_back({storage, shared_storage(storage)});
  return like(tensor, c10::Storage(aliases.back().cpu), c10::DispatchKey::CPU);
}

inline at::Tensor on_cpu(const at::Tensor& tensor) {
  Aliases aliases;
  return on_cpu(tensor, aliases, "alias");
}

// Return the cuda tensor for ``tensor``, a CPU kernel's result: a view of an argument, or a tensor of its own.
inline at::Tensor on_gpu(const at::Tensor& tensor, Aliases& aliases, int gpu, const char* name) {
  if (!tensor.defined() || tensor.is_cuda()) {
    return tensor;
  }
  check_strided(tensor, name);
  const auto& storage = tensor.storage();
  for (const auto& alias : aliases) {
    if (alias.cpu.get() == storage.unsafeGetStorageImpl()) {
      return like(tensor, alias.cuda, c10::DispatchKey::CUDA);
    }
  }
  at::DataPtr data;
  if (storage.nbytes() == 0 || is_device_memory(storage.data_ptr())) {
    data = storage.set_data_ptr(at::DataPtr(nullptr, at::Device(at::kCPU)));
    data.unsafe_set_device(cuda(gpu));
  } else {
    data = allocate_on(storage.nbytes(), gpu, cuda(gpu));
    std::memcpy(data.get(), storage.data(), storage.nbytes());
  }
  c10::Storage result(
      c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), DeviceAllocator::instance(), true);
  aliases.push_back({result, c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl())});
  return like(tensor, result, c10::DispatchKey::CUDA);
}

// What the fallback has to know of an operator; derived from its schema once per thread.
struct Operator {
  struct Result {
    int argument = -1;  // the argument that the operator writes and returns
  };
  std::vector<int> written;
  std::vector<Result> results;
  int device = -1, generator = -1;
  bool pointwise, draws, mixes, needs_host, on_cpu;
  std::string name;

  static const Operator& of(const c10::OperatorHandle& handle) {
    thread_local std::unordered_map<const void*, std::unique_ptr<Operator>> known;
    auto& entry = known[&handle.schema()];
    if (!entry) {
      entry = std::make_unique<Operator>(handle);
    }
    return *entry;
  }

  explicit Operator(const c10::OperatorHandle& handle) : name(handle.schema().name()) {
    const auto& schema = handle.schema();
    const auto& arguments = schema.arguments();
    for (int i = 0; i < static_cast<int>(arguments.size()); ++i) {
      const auto* alias = arguments[i].alias_info();
      if (alias && alias->isWrite()) {
        written.push_back(i);
      }
      auto type = arguments[i].type();
      if (auto optional = type->cast<c10::OptionalType>()) {
        type = optional->getElementType();
      }
      if (type->kind() == c10::TypeKind::DeviceObjType) {
        device = i;
      } else if (type->kind() == c10::TypeKind::GeneratorType) {
        generator = i;
      }
    }
    for (const auto& each : schema.returns()) {
      Result result;
      const auto* alias = each.alias_info();
      if (alias && alias->isWrite()) {
        for (int i : written) {
          if (arguments[i].alias_info()->beforeSets() == alias->beforeSets()) {
            result.argument = i;
          }
        }
      }
      results.push_back(result);
    }
    pointwise = handle.hasTag(at::Tag::pointwise);
    on_cpu = handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    draws = handle.hasTag(at::Tag::nondeterministic_seeded);
    needs_host = handle.hasTag(at::Tag::data_dependent_output) || handle.hasTag(at::Tag::dynamic_output_shape);
    // Operators for which PyTorch takes CPU tensors besides those on a GPU.
    static const std::set<std::string> mixing = {
        "aten::copy_", "aten::_foreach_copy_", "aten::index", "aten::index_put_", "aten::_index_put_impl_",
        "aten::index_put", "aten::_unsafe_index", "aten::_unsafe_index_put", "aten::_pack_padded_sequence",
        "aten::_ctc_loss", "aten::set_"};
    mixes = mixing.count(name) != 0;
  }
};

// Collects the arguments of one call, checks their devices, and makes them CPU tensors.
class Arguments {
 public:
  Arguments(const Operator& op, const c10::OperatorHandle& handle) : op_(op), handle_(handle) {}

  void find_device(const IValue& value) {
    each(value, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && gpu < 0) {
        gpu = tensor.device().index();
      }
    });
  }

  void check(const IValue& value, int index) {
    const bool is_written = std::find(op_.written.begin(), op_.written.end(), index) != op_.written.end();
    each(value, [&](const at::Tensor& tensor) {
      if (gpu < 0 || op_.mixes || tensor.device() == cuda(gpu) || (tensor.is_cpu() && tensor.dim() == 0 && !is_written)) {
        return;
      }
      if (op_.pointwise) {
        TORCH_CHECK(
            false, "Expected all tensors to be on the same device, but found at least two devices, ", cuda(gpu),
            " and ", tensor.device(), "!");
      }
      const std::string method = "wrapper_CUDA_" + op_.name.substr(op_.name.find("::") + 2);
      const auto& argument = handle_.schema().arguments()[index].name();
      c10::impl::common_device_check_failure(cuda(gpu), tensor, method.c_str(), argument.c_str());
    });
  }

  IValue to_cpu(const IValue& value) {
    const char* name = op_.name.c_str();
    if (value.isTensor()) {
      const auto& tensor = value.toTensor();
      return tensor.defined() && tensor.is_cuda() ? IValue(on_cpu(tensor, aliases, name)) : value;
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      const auto before = value.toTensorList();
      list.reserve(before.size());
      for (const at::Tensor tensor : before) {
        list.push_back(tensor.defined() && tensor.is_cuda() ? on_cpu(tensor, aliases, name) : tensor);
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
        list.push_back(
            tensor && tensor->defined() && tensor->is_cuda() ? std::optional(on_cpu(*tensor, aliases, name)) : tensor);
      }
      return list;
    }
    return value;
  }

  int gpu = -1;
  Aliases aliases;

 private:
  template <class Function>
  static void each(const IValue& value, const Function& function) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        function(value.toTensor());
      }
    } else if (value.isTensorList()) {
      for (const at::Tensor tensor : value.toTensorList()) {
        if (tensor.defined()) {
          function(tensor);
        }
      }
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
        if (tensor && tensor->defined()) {
          function(*tensor);
        }
      }
    }
  }

  const Operator& op_;
  const c10::OperatorHandle& handle_;
};

// Lets CPU kernels that take no generator draw from the GPU's default generator.
class DrawsFromGpu {
 public:
  explicit DrawsFromGpu(int gpu) : gpu_(default_generator(gpu)), cpu_(at::detail::getDefaultCPUGenerator()) {
    before_ = cpu_.get_state();
    cpu_.set_state(gpu_.get_state());
  }
  ~DrawsFromGpu() {
    gpu_.set_state(cpu_.get_state());
    cpu_.set_state(before_);
  }
  DrawsFromGpu(const DrawsFromGpu&) = delete;
  DrawsFromGpu& operator=(const DrawsFromGpu&) = delete;

 private:
  at::Generator gpu_, cpu_;
  at::Tensor before_;
};

// A GPU keeps the means of a layer norm in float32, and sums the gradients of its weights in float32. The CPU kernels use
// the tensors' own type, which loses digits over a thousand rows. Computes half and bfloat16 in float32, rounds once.
class InFloat32 {
 public:
  InFloat32(const Operator& op, const c10::OperatorHandle& handle, Stack* stack) : stack_(stack) {
    const bool forward = op.name == "aten::native_layer_norm";
    if (!forward && op.name != "aten::native_layer_norm_backward") {
      return;
    }
    const auto first = stack->size() - handle.schema().arguments().size();
    const auto type = (*stack)[first + (forward ? 0 : 1)].toTensor().scalar_type();
    if (type != at::kHalf && type != at::kBFloat16) {
      return;
    }
    if (forward) {
      types_ = {type, at::kFloat, at::kFloat};
    } else {
      const auto& weight = (*stack)[first + 5];
      const bool has_weight = weight.isTensor() && weight.toTensor().defined();
      const auto of_weight = has_weight ? weight.toTensor().scalar_type() : type;
      types_ = {type, of_weight, of_weight};
    }
    for (size_t i = first; i < stack->size(); ++i) {
      auto& value = (*stack)[i];
      if (value.isTensor() && value.toTensor().defined()) {
        value = IValue(value.toTensor().to(at::kFloat));
      }
    }
  }

  void round() {
    const auto first = stack_->size() - types_.size();
    for (size_t i = 0; i < types_.size(); ++i) {
      auto& value = (*stack_)[first + i];
      if (value.isTensor() && value.toTensor().defined()) {
        value = IValue(value.toTensor().to(types_[i]));
      }
    }
  }

 private:
  Stack* stack_;
  c10::SmallVector<at::ScalarType, 3> types_;
};

// Call the CPU kernel on arguments that are on the CPU already.
inline void execute(const c10::OperatorHandle& handle, const Operator& op, Stack* stack, int gpu) {
  at::AutoDispatchBelowADInplaceOrView below;
  std::optional<DrawsFromGpu> draws;
  if (op.draws && op.generator < 0 && gpu >= 0) {
    draws.emplace(gpu);
  }
  InFloat32 wide(op, handle, stack);
  Redirect redirect(gpu);
  handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  wide.round();
}

inline void write_back(const IValue& before, const IValue& after, Aliases& aliases) {
  if (before.isTensorList()) {
    const auto old = before.toTensorList(), changed = after.toTensorList();
    for (size_t i = 0; i < old.size(); ++i) {
      write_back(IValue(at::Tensor(old[i])), IValue(at::Tensor(changed[i])), aliases);
    }
    return;
  }
  if (!before.isTensor() || !before.toTensor().defined() || !before.toTensor().is_cuda()) {
    return;
  }
  auto* cuda = before.toTensor().unsafeGetTensorImpl();
  const auto& cpu = after.toTensor();
  for (auto& alias : aliases) {
    // A kernel that resized its output gave the storage other memory.
    if (alias.cuda.unsafeGetStorageImpl() == before.toTensor().storage().unsafeGetStorageImpl() &&
        alias.cpu->data() != alias.cuda.data()) {
      auto data = alias.cpu->set_data_ptr(at::DataPtr(nullptr, at::Device(at::kCPU)));
      data.unsafe_set_device(cuda->device());
      alias.cuda.set_nbytes(alias.cpu->nbytes());
      alias.cuda.set_data_ptr_noswap(std::move(data));
      alias.cpu->set_data_ptr_noswap(at::DataPtr(const_cast<void*>(alias.cuda.data()), at::Device(at::kCPU)));
    }
  }
  if (cuda->sizes() != cpu.sizes() || cuda->strides() != cpu.strides() ||
      cuda->storage_offset() != cpu.storage_offset()) {
    cuda->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }
}

inline std::vector<at::Tensor> tensors_of(const IValue& value) {
  if (value.isTensor()) {
    return {value.toTensor()};
  }
  return value.isTensorList() ? value.toTensorVector() : std::vector<at::Tensor>();
}

// Record the call, and run it for the shapes of its results, with what it writes restored.
inline void capture(
    const c10::OperatorHandle& handle, const Operator& op, Stack* stack, int gpu, Arguments& arguments) {
  TORCH_CHECK(
      !op.needs_host, "HIP error: operation not permitted when stream is capturing\n", op.name,
      " needs values on the host, which do not exist before the graph is replayed");
  const auto count = handle.schema().arguments().size();
  Stack inputs(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  std::vector<std::pair<at::Tensor, at::Tensor>> saved;
  for (int i : op.written) {
    for (const auto& tensor : tensors_of(inputs[i])) {
      if (tensor.defined()) {
        at::AutoDispatchBelowADInplaceOrView below;
        saved.emplace_back(tensor, tensor.clone());
      }
    }
  }
  execute(handle, op, stack, gpu);
  at::AutoDispatchBelowADInplaceOrView below;
  for (const auto& [tensor, before] : saved) {
    if (tensor.sizes() == before.sizes()) {
      tensor.copy_(before);
    }
  }
  // Results that are memory of their own get their values at replay; views need nothing.
  std::vector<std::pair<size_t, at::Tensor>> fresh;
  size_t place = 0;
  for (size_t i = 0; i < op.results.size(); ++i) {
    auto& value = (*stack)[stack->size() - op.results.size() + i];
    for (const auto& tensor : tensors_of(value)) {
      if (op.results[i].argument < 0 && tensor.defined() && tensor.is_cpu() && gpu >= 0) {
        const bool view = std::any_of(arguments.aliases.begin(), arguments.aliases.end(), [&](const Alias& alias) {
          return alias.cpu.get() == tensor.storage().unsafeGetStorageImpl();
        });
        if (!view) {
          fresh.emplace_back(place, tensor);
        }
      }
      ++place;
    }
  }
  if (fresh.empty() && op.written.empty()) {
    return;
  }
  // The tensors of this call become cuda tensors after this; the graph keeps aliases of those.
  auto targets = std::make_shared<std::vector<std::pair<size_t, at::Tensor>>>();
  for (const auto& [index, tensor] : fresh) {
    const auto gpu_tensor = on_gpu(tensor, arguments.aliases, gpu, op.name.c_str());
    targets->emplace_back(index, on_cpu(gpu_tensor));
  }
  record_node([handle, &op = *new Operator(op), inputs, targets, gpu] {
    Stack again(inputs);
    execute(handle, op, &again, gpu);
    std::vector<at::Tensor> results;
    for (const auto& value : again) {
      for (auto& tensor : tensors_of(value)) {
        results.push_back(std::move(tensor));
      }
    }
    at::AutoDispatchBelowADInplaceOrView below;
    for (const auto& [index, target] : *targets) {
      target.copy_(results[index]);
    }
  });
}

inline void fallback(const c10::OperatorHandle& handle, c10::DispatchKeySet, Stack* stack) {
  const auto& op = Operator::of(handle);
  const auto count = handle.schema().arguments().size();
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.on_cpu, op.name, " has no CPU kernel and is not available on the emulated machine;"
      " docs/emulated-machine-torch.md lists what is");
  const auto first = stack->size() - count;
  Arguments arguments(op, handle);
  for (size_t i = 0; i < count; ++i) {
    arguments.find_device((*stack)[first + i]);
  }
  int result_gpu = arguments.gpu;
  if (op.device >= 0 && (*stack)[first + op.device].isDevice()) {
    auto& value = (*stack)[first + op.device];
    const auto device = value.toDevice();
    result_gpu = device.is_cuda() ? checked_gpu(device.index()) : -1;
    if (device.is_cuda()) {
      value = IValue(at::Device(at::kCPU));
    }
  }
  if (arguments.gpu >= 0 && result_gpu >= 0 && capturing() && op.name == "aten::copy_" &&
      !(*stack)[first].toTensor().is_cuda() && !PinnedMemory::instance()->contains((*stack)[first].toTensor().data_ptr())) {
    refuse_in_capture("A copy to pageable host memory");
  }
  if (op.generator >= 0) {
    auto& value = (*stack)[first + op.generator];
    if (value.isNone() && result_gpu >= 0) {
      value = IValue(dynamic_cast<Generator&>(*default_generator(result_gpu).unsafeGetGeneratorImpl()).inner);
    } else if (value.isGenerator()) {
      const auto generator = value.toGenerator();
      TORCH_CHECK(
          generator.device().is_cuda(), "Expected a 'cuda' device type for generator but found '",
          generator.device().type(), "'");
      value = IValue(dynamic_cast<Generator&>(*generator.unsafeGetGeneratorImpl()).inner);
    }
  }
  c10::SmallVector<std::pair<int, IValue>, 2> originals;
  for (int i : op.written) {
    originals.emplace_back(i, (*stack)[first + i]);
  }
  for (size_t i = 0; i < count; ++i) {
    auto& value = (*stack)[first + i];
    if (value.isTensor() || value.isList()) {
      arguments.check(value, static_cast<int>(i));
      value = arguments.to_cpu(value);
    }
  }
  c10::SmallVector<IValue, 2> changed;
  for (const auto& [i, value] : originals) {
    changed.push_back((*stack)[first + i]);
  }
  if (capturing()) {
    capture(handle, op, stack, result_gpu, arguments);
  } else {
    execute(handle, op, stack, result_gpu);
  }
  for (size_t i = 0; i < originals.size(); ++i) {
    write_back(originals[i].second, changed[i], arguments.aliases);
  }
  const auto results = stack->size() - op.results.size();
  for (size_t i = 0; i < op.results.size(); ++i) {
    auto& value = (*stack)[results + i];
    if (const int argument = op.results[i].argument; argument >= 0) {
      for (const auto& [index, original] : originals) {
        if (index == argument) {
          value = original;
        }
      }
    } else if (result_gpu < 0) {
      continue;
    } else if (value.isTensor()) {
      value = IValue(on_gpu(value.toTensor(), arguments.aliases, result_gpu, op.name.c_str()));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor tensor : value.toTensorList()) {
        list.push_back(on_gpu(tensor, arguments.aliases, result_gpu, op.name.c_str()));
      }
      value = IValue(list);
    }
  }
}

// -- the operators that make tensors or change only their form; without the detour over CPU tensors --------------------

inline int requested_gpu(std::optional<at::Device> device) {
  return checked_gpu(device ? device->index() : -1);
}

struct OnGpu {
  explicit OnGpu(int gpu) : before_(current_gpu()) {
    current_gpu() = gpu;
  }
  ~OnGpu() {
    current_gpu() = before_;
  }

 private:
  int before_;
};

inline void check_options(std::optional<at::Layout> layout, std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout.value_or(at::kStrided) == at::kStrided, "emulated machine: tensors of layout ", *layout,
      " are not supported on the emulated GPU, only dense ones: see docs/emulated-machine-torch.md");
}

inline at::Tensor empty(
    at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<at::Device> device, std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  check_options(layout, pin);
  OnGpu on(requested_gpu(device));
  return at::detail::empty_generic(
      size, DeviceAllocator::instance(), c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype),
      format);
}

inline at::Tensor empty_strided(
    at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin) {
  check_options(layout, pin);
  OnGpu on(requested_gpu(device));
  return at::detail::empty_strided_generic(
      size, stride, DeviceAllocator::instance(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      c10::dtype_or_default(dtype));
}

inline at::Tensor as_strided(
    const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

inline at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  return at::native::view(self, size);
}

inline void resize_storage(c10::StorageImpl* storage, size_t bytes) {
  OnGpu on(storage->device().index());
  at::native::resize_bytes_cpu(storage, bytes);
}

inline const at::Tensor& resize(
    const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  OnGpu on(self.device().index());
  at::native::resize_impl_cpu_(self.unsafeGetTensorImpl(), size, std::nullopt, true);
  if (format) {
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

inline at::Tensor& set_strided(
    at::Tensor& self, c10::Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  TORCH_CHECK(
      storage.device() == self.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
      "\" to a storage on different device \"", storage.device(), "\".");
  impl->set_storage_keep_dtype(storage);
  impl->set_storage_offset(offset);
  OnGpu on(self.device().index());
  at::native::resize_impl_cpu_(impl, size, stride.empty() ? at::OptionalIntArrayRef() : stride, true);
  return self;
}

inline at::Tensor& set_storage(at::Tensor& self, c10::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return set_strided(self, std::move(storage), 0, {count}, {});
}

inline at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_strided(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

inline at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), 0, at::DataPtr(nullptr, self.device()), DeviceAllocator::instance(), true);
  return set_strided(self, storage, 0, {0}, {});
}

inline at::Tensor pin_memory(const at::Tensor& self, std::optional<at::Device>) {
  TORCH_CHECK(false, "cannot pin '", self.toString(), "' only dense CPU tensors can be pinned");
}

// torch.as_tensor ends with this call: an address that cannot be accessed is reported where the program passes it.
inline at::Tensor to_device(
    const at::Tensor& self, at::Device device, at::ScalarType dtype, bool non_blocking, bool copy,
    std::optional<at::MemoryFormat> format) {
  if (self.has_storage()) {
    check_memory(self);
  }
  return at::native::to(self, device, dtype, non_blocking, copy, format);
}

// A stream's work has ended when its call returns, so memory is never given out again too early.
inline void record_stream(at::Tensor&, at::Stream) {}

// Flash and memory-efficient attention are CUDA kernels: attention is computed by the composite formula.
inline int64_t fused_sdp_choice(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool,
    std::optional<double>, bool) {
  return 0;
}

}  // namespace emulated

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&emulated::fallback>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(emulated::empty));
  library.impl("empty_strided", TORCH_FN(emulated::empty_strided));
  library.impl("as_strided", TORCH_FN(emulated::as_strided));
  library.impl("view", TORCH_FN(emulated::view));
  library.impl("resize_", TORCH_FN(emulated::resize));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(emulated::set_strided));
  library.impl("set_.source_Storage", TORCH_FN(emulated::set_storage));
  library.impl("set_.source_Tensor", TORCH_FN(emulated::set_tensor));
  library.impl("set_", TORCH_FN(emulated::set_nothing));
  library.impl("_pin_memory", TORCH_FN(emulated::pin_memory));
  library.impl("record_stream", TORCH_FN(emulated::record_stream));
  library.impl("to.device", TORCH_FN(emulated::to_device));
  library.impl("_fused_sdp_choice", TORCH_FN(emulated::fused_sdp_choice));
  // Their device-neutral forms choose a kernel by the type of the device, and have none for CUDA in a CPU build;
  // the normalisations would round differently from the CPU kernel.
  for (const char* name : {"copy_", "convolution", "convolution_backward", "_convolution", "native_layer_norm", "native_group_norm",
                           "native_layer_norm_backward"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&emulated::fallback>());
  }
}

// The same function for tensors that autograd could follow: it only adds a check to torch's composite one.
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) {
  library.impl("to.device", TORCH_FN(emulated::to_device));
}
