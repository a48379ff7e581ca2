#include "kernels/cpu/onednn.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "kernels/cpu/onednn_state.h"

// oneDNN of Debian runs on GNU OpenMP, whose header comes with GCC only.
extern "C" void omp_set_num_threads(int count);

namespace millrace::kernels::dnn {
namespace {

constexpr size_t kAlignment = 64;

struct MaybeLibrary {
  std::optional<Library> library;
};

int native_arg(Arg arg) {
  switch (arg) {
    case Arg::kSrc:
      return DNNL_ARG_SRC;
    case Arg::kWeights:
      return DNNL_ARG_WEIGHTS;
    case Arg::kBias:
      return DNNL_ARG_BIAS;
    case Arg::kSummand:  // the first of the following operations
      return DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1;
    case Arg::kDst:
      return DNNL_ARG_DST;
    case Arg::kDiffSrc:
      return DNNL_ARG_DIFF_SRC;
    case Arg::kDiffWeights:
      return DNNL_ARG_DIFF_WEIGHTS;
    case Arg::kDiffDst:
      return DNNL_ARG_DIFF_DST;
  }
  return 0;
}

bool is_output(Arg arg) {
  return arg == Arg::kDst || arg == Arg::kDiffSrc || arg == Arg::kDiffWeights;
}

dnnl::memory::data_type native_type(DType dtype) {
  using Type = dnnl::memory::data_type;
  switch (dtype) {
    case DType::kFloat32:
      return Type::f32;
    case DType::kBfloat16:
      return Type::bf16;
    case DType::kFloat16:
      return Type::f16;
    case DType::kInt32:
      return Type::s32;
    case DType::kInt8:
      return Type::s8;
    case DType::kUint8:
      return Type::u8;
    default:
      return Type::undef;
  }
}

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Status failed(dnnl_status_t status) {
  return {status == dnnl_out_of_memory ? StatusCode::kResource : StatusCode::kExecution,
          fmt::format("oneDNN failed with status {}", static_cast<int>(status))};
}

dnnl_status_t point(dnnl::memory& memory, const void* data, dnnl_stream_t stream) {
  void* now = nullptr;
  const dnnl_status_t status = dnnl_memory_get_data_handle(memory.get(), &now);
  if (status != dnnl_success || now == data) return status;
  return dnnl_memory_set_data_handle_v2(memory.get(), const_cast<void*>(data), stream);
}

dnnl_status_t run_reorder(const dnnl::primitive& reorder, const dnnl::memory& from,
                          const dnnl::memory& to, dnnl_stream_t stream) {
  const std::array<dnnl_exec_arg_t, 2> args = {
      {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}}};
  return dnnl_primitive_execute(reorder.get(), stream, args.size(), args.data());
}

struct Primitive::State {
  struct Argument {
    Arg arg;
    dnnl::memory::desc plain;   // as the maker described it
    dnnl::memory::desc wanted;  // as the primitive expects it
    LayoutPtr layout;           // the same for callers; null if the described layout is acceptable
    // Layout of the caller's data in the last run, and the state derived from it; not set before
    // the first run.
    bool prepared = false;
    LayoutPtr seen;
    dnnl::memory user;
    dnnl::memory own;  // with a conversion: memory in the scratch buffer
    dnnl::primitive reorder;
    bool is_read = false;  // an output whose old content is read
    dnnl::primitive fill;  // conversion of the old content
    size_t offset = 0;
  };
  dnnl::engine engine;
  dnnl_stream_t stream = nullptr;
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  std::vector<dnnl_exec_arg_t> exec;  // the arguments, and scratch memory if needed
  dnnl::memory own_scratch;           // after the buffers of conversions
  size_t scratch = 0;                 // bytes for these buffers
  std::optional<tiles::Shape> tiles;  // replaces all of the above

  Status run_tiles(CpuDevice& device, llvm::ArrayRef<Binding> bindings) const;
  Status expect(size_t index, const LayoutPtr& layout);
  Status expect_all(llvm::ArrayRef<Binding> bindings);
  dnnl_status_t load(llvm::ArrayRef<Binding> bindings, std::byte* scratch_memory);
  dnnl_status_t store();
};

Status Primitive::State::run_tiles(CpuDevice& device, llvm::ArrayRef<Binding> bindings) const {
  tiles::Operands operands;
  for (const Binding& binding : bindings) {
    const auto* const data = static_cast<const float*>(binding.data);
    if (binding.arg == Arg::kSrc) operands.a = data;
    if (binding.arg == Arg::kWeights) operands.b = data;
    if (binding.arg == Arg::kBias) operands.bias = data;
    if (binding.arg == Arg::kSummand) operands.summand = data;
    if (binding.arg == Arg::kDst) operands.c = const_cast<float*>(data);
  }
  return tiles::multiply(device, *tiles, operands);
}

// Prepares the conversion of an argument in this layout.
Status Primitive::State::expect(size_t index, const LayoutPtr& layout) {
  Argument& argument = arguments[index];
  MILLRACE_ASSIGN_OR_RETURN(const NativeLayout* const native, native_layout(layout));
  const bool same =
      native == nullptr ? argument.layout == nullptr : native->desc() == argument.wanted;
  const auto made = guarded<bool>("reorder", [&] {
    const dnnl::memory::desc& now = native == nullptr ? argument.plain : native->desc();
    argument.user = dnnl::memory(same ? argument.wanted : now, engine, DNNL_MEMORY_NONE);
    argument.own = {};
    argument.reorder = {};
    argument.fill = {};
    if (same) return true;
    argument.own = dnnl::memory(argument.wanted, engine, DNNL_MEMORY_NONE);
    argument.reorder = is_output(argument.arg) ? dnnl::reorder(argument.own, argument.user)
                                               : dnnl::reorder(argument.user, argument.own);
    if (argument.is_read) argument.fill = dnnl::reorder(argument.user, argument.own);
    return true;
  });
  if (!made.ok()) return made.status();
  argument.seen = layout;
  argument.prepared = true;
  exec[index] = {native_arg(argument.arg), (argument.own ? argument.own : argument.user).get()};
  scratch = 0;
  for (Argument& each : arguments) {
    each.offset = scratch;
    if (each.own) scratch += aligned(each.wanted.get_size());
  }
  return Ok();
}

Status Primitive::State::expect_all(llvm::ArrayRef<Binding> bindings) {
  for (const Binding& binding : bindings) {
    const Layout* const layout = binding.layout == nullptr ? nullptr : binding.layout->get();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Argument& argument = arguments[i];
      if (argument.arg != binding.arg) continue;
      if (argument.prepared && argument.seen.get() == layout) continue;
      MILLRACE_RETURN_IF_ERROR(expect(i, binding.layout == nullptr ? nullptr : *binding.layout));
    }
  }
  return Ok();
}

// Sets the data pointers of all memories and converts the inputs.
dnnl_status_t Primitive::State::load(llvm::ArrayRef<Binding> bindings, std::byte* scratch_memory) {
  for (Argument& argument : arguments) {
    const void* data = nullptr;
    for (const Binding& binding : bindings) {
      if (binding.arg == argument.arg) data = binding.data;
    }
    if (data == nullptr) return dnnl_invalid_arguments;
    if (const auto status = point(argument.user, data, stream); status != dnnl_success)
      return status;
    if (!argument.own) continue;
    const auto status = point(argument.own, scratch_memory + argument.offset, stream);
    if (status != dnnl_success) return status;
    if (argument.fill) {
      const auto filled = run_reorder(argument.fill, argument.user, argument.own, stream);
      if (filled != dnnl_success) return filled;
    }
    if (is_output(argument.arg)) continue;
    const auto converted = run_reorder(argument.reorder, argument.user, argument.own, stream);
    if (converted != dnnl_success) return converted;
  }
  return dnnl_success;
}

dnnl_status_t Primitive::State::store() {
  for (const Argument& argument : arguments) {
    if (!argument.own || !is_output(argument.arg)) continue;
    const auto status = run_reorder(argument.reorder, argument.own, argument.user, stream);
    if (status != dnnl_success) return status;
  }
  return dnnl_success;
}

Status Primitive::run(CpuDevice& device, llvm::ArrayRef<Binding> bindings) const {
  State& state = *state_;
  if (state.tiles) return state.run_tiles(device, bindings);
  omp_set_num_threads(device.threads());
  MILLRACE_RETURN_IF_ERROR(state.expect_all(bindings));
  std::byte* scratch = nullptr;
  const size_t own = state.own_scratch ? state.own_scratch.get_desc().get_size() : 0;
  if (state.scratch + own > 0) {
    MILLRACE_ASSIGN_OR_RETURN(scratch, device.scratch(state.scratch + own, kScratchSlot));
  }
  if (own > 0) {
    const auto status = point(state.own_scratch, scratch + state.scratch, state.stream);
    if (status != dnnl_success) return failed(status);
  }
  if (const auto status = state.load(bindings, scratch); status != dnnl_success)
    return failed(status);
  const auto status = dnnl_primitive_execute(
      state.primitive.get(), state.stream, static_cast<int>(state.exec.size()), state.exec.data());
  if (status != dnnl_success) return failed(status);
  if (const auto stored = state.store(); stored != dnnl_success) return failed(stored);
  return Ok();
}

std::shared_ptr<const Layout> Primitive::layout(Arg arg) const {
  for (const State::Argument& argument : state_->arguments) {
    if (argument.arg == arg) return argument.layout;
  }
  return nullptr;
}

Status multiply(const SmallProduct& spec, const float* a, const float* b, float* c) {
  omp_set_num_threads(1);
  const auto status = dnnl_sgemm(spec.a_transposed ? 'T' : 'N', spec.b_transposed ? 'T' : 'N',
                                 spec.rows, spec.columns, spec.inner, spec.alpha, a, spec.a_stride,
                                 b, spec.b_stride, 0.0F, c, spec.c_stride);
  return status == dnnl_success ? Ok() : failed(status);
}

StatusOr<Library*> library_of(CpuDevice& device) {
  auto& held = device.library<MaybeLibrary>();
  // Primitives are made for the number of threads that is set at that time.
  omp_set_num_threads(device.threads());
  if (!held.library) {
    MILLRACE_ASSIGN_OR_RETURN(held.library, guarded<std::optional<Library>>("stream", [] {
                                dnnl::engine engine(dnnl::engine::kind::cpu, 0);
                                dnnl::stream stream(engine);
                                return std::optional<Library>(Library{engine, stream});
                              }));
  }
  return &*held.library;
}

dnnl::memory::desc native(const Desc& desc) {
  return {dnnl::memory::dims(desc.dims.begin(), desc.dims.end()), native_type(desc.dtype),
          dnnl::memory::dims(desc.strides.begin(), desc.strides.end())};
}

dnnl::memory::desc any_layout(const Desc& desc) {
  return {dnnl::memory::dims(desc.dims.begin(), desc.dims.end()), native_type(desc.dtype),
          dnnl::memory::format_tag::any};
}

void PrimitiveBuilder::add(Arg arg, const Desc& desc, const dnnl::memory::desc& chosen,
                           bool is_read) {
  pending_.push_back({arg, native(desc), chosen, is_read});
}

dnnl::primitive_attr own_scratch() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Primitive tile_primitive(const tiles::Shape& shape) {
  auto state = std::make_shared<Primitive::State>();
  state->tiles = shape;
  return Primitive(std::move(state));
}

Primitive PrimitiveBuilder::build(const dnnl::primitive& primitive,
                                  const dnnl::memory::desc& scratch) {
  auto state = std::make_shared<Primitive::State>();
  state->engine = library_.engine;
  state->stream = library_.stream.get();
  state->primitive = primitive;
  for (const Pending& pending : pending_) {
    Primitive::State::Argument argument;
    argument.arg = pending.arg;
    argument.plain = pending.user;
    argument.wanted = pending.chosen;
    argument.is_read = pending.is_read;
    if (pending.user != pending.chosen && !same_bytes(pending.chosen, pending.user)) {
      argument.layout =
          std::make_shared<const NativeLayout>(library_.engine, pending.chosen, pending.user);
    }
    state->arguments.push_back(std::move(argument));
    state->exec.emplace_back();
  }
  if (scratch.get_size() > 0) {
    state->own_scratch = dnnl::memory(scratch, library_.engine, DNNL_MEMORY_NONE);
    state->exec.push_back({DNNL_ARG_SCRATCHPAD, state->own_scratch.get()});
  }
  return Primitive(std::move(state));
}

Desc dense(DType dtype, llvm::ArrayRef<int64_t> dims) {
  Desc desc{dtype, Dims(dims.begin(), dims.end()), Dims(dims.size(), 1)};
  for (size_t i = dims.size(); i-- > 1;)
    desc.strides[i - 1] = desc.strides[i] * std::max<int64_t>(desc.dims[i], 1);
  return desc;
}

Desc image(const Tensor& tensor, bool channels_last) {
  Desc desc = dense(tensor.dtype(), tensor.dims());
  if (!channels_last) return desc;
  const auto to_front = [](Dims& list) {
    std::rotate(list.begin() + 1, list.end() - 1, list.end());
  };
  to_front(desc.dims);
  to_front(desc.strides);
  return desc;
}

}  // namespace millrace::kernels::dnn
