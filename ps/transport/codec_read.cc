#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "proto/ps_service.pb.h"
#include "ps/transport/codec.h"
#include "ps/transport/envelope.h"
#include "ps/transport/error_codec.h"
#include "ps/transport/wire_format.h"

namespace millrace::ps {
namespace {

constexpr int kMaxRank = 32;
constexpr int kMaxLodLevels = 32;
// Maximum memory that is allocated before any of the announced bytes have arrived: for peers that
// are known, and for others.
constexpr uint64_t kFirstBytes = uint64_t{1} << 20U;
constexpr uint64_t kFirstUnknownBytes = uint64_t{4} << 10U;
// A decoded head takes at most this many times its length: names, dims and values of a few bytes
// each become objects.
constexpr uint64_t kHeadFactor = 64;

enum class RangeKind { kText, kRows, kLodLevel, kElements };

// A range of payload bytes and its destination.
struct PayloadRange {
  RangeKind kind = RangeKind::kElements;
  uint64_t bytes = 0;
  std::string* text = nullptr;
  SelectedRows* rows = nullptr;  // for kRows
  Tensor* tensor = nullptr;      // for kElements
  DType dtype = DType::kFloat32;
  Dims dims;
  int64_t expected_rows = -1;  // for kElements: required value of dim 0
};

bool add_checked(uint64_t& sum, uint64_t more) {
  return !__builtin_add_overflow(sum, more, &sum);
}

// Number of bytes of the elements; false if the dims are invalid or their product exceeds int64.
bool count_bytes(const PsTensor& tensor, uint64_t& bytes) {
  int64_t product = dtype_size(static_cast<DType>(tensor.dtype()));
  bool empty = false;
  for (const int64_t dim : tensor.dims()) {
    if (dim < 0) return false;
    if (dim == 0) empty = true;
    if (dim != 0 && __builtin_mul_overflow(product, dim, &product)) return false;
  }
  bytes = empty ? 0 : static_cast<uint64_t>(product);
  return true;
}

Status check_version(uint32_t version) {
  if (version == kWireVersion) return Ok();
  return Status(StatusCode::kDistributed,
                fmt::format(
                    "the caller uses version {} of the protocol, but this server uses version {}",
                    version, kWireVersion))
      .with_hint("run the same release of millrace in all processes");
}

}  // namespace

struct MessageReader::Impl {
  BufferPool& pool;
  uint64_t max_payload;

  enum class Phase { kPrelude, kHead, kPayload, kDone } phase = Phase::kPrelude;
  std::string buffer{std::string(kPreludeBytes, '\0')};  // prelude, then head
  size_t at = 0;                                         // filled bytes of buffer or range

  std::vector<PayloadRange> ranges;
  size_t now_at = 0;           // the current range
  uint64_t payload_bytes = 0;  // of all ranges
  uint64_t received = 0;
  size_t head_bytes = 0;    // announced length of the head
  bool is_unknown = false;  // see MessageGrant
  Reservation in_total;     // of the payload, and of the head of unknown callers
  Reservation in_peer;

  // Memory of the current range: room for `capacity` of its bytes.
  std::byte* target = nullptr;
  uint64_t capacity = 0;
  BufferPool::Block block;    // for kElements, if the tensor's own memory is unsuitable
  std::vector<int64_t> ints;  // for kLodLevel
  std::vector<LodLevel> levels;

  Impl(BufferPool& from, uint64_t limit) : pool(from), max_payload(limit) {}

  Status plan_text(std::string& text, uint64_t bytes);
  Status plan_value(const PsValue& from, Value& to);
  Status plan_tensor(const PsTensor& from, Tensor& to, int64_t expected_rows);
  Status plan(PayloadRange range);

  [[nodiscard]] const PayloadRange& current() const { return ranges[now_at]; }
  Status begin_head();
  Status grow_head();
  Status accept(const MessageGrant& grant);
  Status reserve_payload();
  Status begin_range();
  Status grow(uint64_t capacity);
  Status end_range();
  Status end_elements(const PayloadRange& done);
  Status next_ranges();
};

Status MessageReader::Impl::plan(PayloadRange range) {
  if (!add_checked(payload_bytes, range.bytes) || payload_bytes > max_payload) {
    return Status(StatusCode::kResource,
                  fmt::format("a message announces more than {} bytes", max_payload))
        .with_hint("the limit is --max-message-bytes");
  }
  ranges.push_back(std::move(range));
  return Ok();
}

Status MessageReader::Impl::plan_text(std::string& text, uint64_t bytes) {
  text.clear();
  PayloadRange range;
  range.kind = RangeKind::kText;
  range.bytes = bytes;
  range.text = &text;
  return bytes == 0 ? Ok() : plan(std::move(range));
}

Status MessageReader::Impl::plan_tensor(const PsTensor& from, Tensor& to, int64_t expected_rows) {
  if (from.absent()) {
    to.reset();
    return expected_rows <= 0
               ? Ok()
               : InvalidData("a value has {} row numbers, but no rows", expected_rows);
  }
  PayloadRange range;
  range.dtype = static_cast<DType>(from.dtype());
  if (!is_valid(range.dtype)) return InvalidData("there is no dtype {}", from.dtype());
  if (from.dims_size() > kMaxRank || from.lod_sizes_size() > kMaxLodLevels) {
    return InvalidData("a tensor of rank {} with {} LoD levels, expected at most {} and {}",
                       from.dims_size(), from.lod_sizes_size(), kMaxRank, kMaxLodLevels);
  }
  if (!count_bytes(from, range.bytes)) return InvalidData("the message has invalid tensor dims");
  for (const uint64_t size : from.lod_sizes()) {
    PayloadRange level;
    level.kind = RangeKind::kLodLevel;
    if (__builtin_mul_overflow(size, sizeof(int64_t), &level.bytes))
      return InvalidData("a LoD level has an invalid number of offsets, {}", size);
    MILLRACE_RETURN_IF_ERROR(plan(std::move(level)));
  }
  range.dims.assign(from.dims().begin(), from.dims().end());
  range.tensor = &to;
  range.expected_rows = expected_rows;
  return plan(std::move(range));
}

Status MessageReader::Impl::plan_value(const PsValue& from, Value& to) {
  const auto kind = static_cast<VarKind>(from.kind());
  const int wanted = kind == VarKind::kLodTensor || kind == VarKind::kSelectedRows ? 1
                     : kind == VarKind::kLodTensorArray                            ? -1
                                                                                   : 0;
  if (wanted >= 0 && from.tensors_size() != wanted) {
    return InvalidData("a value of kind {} has {} tensors, expected {}", from.kind(),
                       from.tensors_size(), wanted);
  }
  if (kind == VarKind::kLodTensor) return plan_tensor(from.tensors(0), to.as<Tensor>(), -1);
  if (kind == VarKind::kSelectedRows) {
    auto& rows = to.as<SelectedRows>();
    rows.height = from.height();
    rows.rows.clear();
    PayloadRange range;
    range.kind = RangeKind::kRows;
    range.rows = &rows;
    if (from.rows() > INT64_MAX / sizeof(int64_t))
      return InvalidData("a value has an invalid number of rows, {}", from.rows());
    range.bytes = from.rows() * sizeof(int64_t);
    MILLRACE_RETURN_IF_ERROR(plan(std::move(range)));
    return plan_tensor(from.tensors(0), rows.value, static_cast<int64_t>(from.rows()));
  }
  if (kind == VarKind::kLodTensorArray) {
    auto& array = to.as<TensorArray>();
    array.resize(static_cast<size_t>(from.tensors_size()));
    for (size_t i = 0; i < array.size(); ++i)
      MILLRACE_RETURN_IF_ERROR(plan_tensor(from.tensors(static_cast<int>(i)), array[i], -1));
    return Ok();
  }
  if (kind == VarKind::kStrings) {
    auto& strings = to.as<Strings>();
    strings.resize(static_cast<size_t>(from.string_sizes_size()));
    for (size_t i = 0; i < strings.size(); ++i)
      MILLRACE_RETURN_IF_ERROR(plan_text(strings[i], from.string_sizes(static_cast<int>(i))));
    return Ok();
  }
  to.clear();
  return kind == VarKind::kRaw ? Ok()
                               : InvalidData("values of kind {} cannot be sent", from.kind());
}

Status MessageReader::Impl::begin_head() {
  uint32_t length = 0;
  std::memcpy(&length, buffer.data() + kWireMark.size(), sizeof length);
  if (std::string_view(buffer).substr(0, kWireMark.size()) != kWireMark)
    return InvalidData("these bytes are not a message, expected them to start with {}", kWireMark);
  if (length == 0 || length > kMaxHeadBytes)
    return InvalidData("the head has {} bytes, expected 1 to {}", length, kMaxHeadBytes);
  phase = Phase::kHead;
  head_bytes = length;
  at = 0;
  buffer.clear();
  return grow_head();
}

// The head grows with the bytes received, too.
Status MessageReader::Impl::grow_head() {
  const size_t wanted =
      std::min<size_t>(head_bytes, std::max<size_t>(kFirstUnknownBytes, 4 * buffer.size()));
  MILLRACE_RETURN_IF_ERROR(in_total.add(wanted - buffer.size()));
  buffer.resize(wanted);
  return Ok();
}

// Takes the budgets of a call whose envelope has been read.
Status MessageReader::Impl::accept(const MessageGrant& grant) {
  is_unknown = grant.is_unknown;
  in_total = Reservation(grant.total);
  in_peer = Reservation(grant.peer);
  if (!is_unknown) return Ok();
  if (head_bytes > kMaxUnknownHeadBytes) {
    return Status(StatusCode::kResource,
                  fmt::format("a caller that has not said hello sends a head of {} bytes, expected "
                              "at most {}",
                              head_bytes, kMaxUnknownHeadBytes));
  }
  return in_total.add(head_bytes * kHeadFactor);
}

// The values of unknown callers are reserved as they arrive, see grow().
Status MessageReader::Impl::reserve_payload() {
  if (is_unknown) return Ok();
  MILLRACE_RETURN_IF_ERROR(in_peer.add(payload_bytes));
  return in_total.add(payload_bytes);
}

// Makes room for `wanted` bytes of the current range; keeps the bytes that have arrived.
Status MessageReader::Impl::grow(uint64_t wanted) {
  const PayloadRange& now = current();
  if (is_unknown) MILLRACE_RETURN_IF_ERROR(in_total.add(wanted - capacity));
  switch (now.kind) {
    case RangeKind::kText:
      now.text->resize(wanted);
      target = reinterpret_cast<std::byte*>(now.text->data());
      break;
    case RangeKind::kRows:
    case RangeKind::kLodLevel: {
      std::vector<int64_t>& to = now.kind == RangeKind::kRows ? now.rows->rows : ints;
      to.resize((wanted + sizeof(int64_t) - 1) / sizeof(int64_t));
      target = reinterpret_cast<std::byte*>(to.data());
      break;
    }
    case RangeKind::kElements: {
      MILLRACE_ASSIGN_OR_RETURN(BufferPool::Block larger, pool.take(wanted));
      if (at > 0) std::memcpy(larger.data, target, at);
      block = std::move(larger);
      target = block.data;
      break;
    }
  }
  capacity = wanted;
  return Ok();
}

Status MessageReader::Impl::begin_range() {
  at = 0;
  target = nullptr;
  capacity = 0;
  block = {};
  const PayloadRange& now = current();
  if (now.bytes == 0) return Ok();
  if (now.kind == RangeKind::kElements) {
    Tensor& tensor = *now.tensor;
    if (tensor.initialized() && tensor.storage_bytes() >= static_cast<int64_t>(now.bytes)) {
      MILLRACE_RETURN_IF_ERROR(tensor.resize(now.dtype, now.dims));
      target = tensor.raw();
      capacity = now.bytes;
      return Ok();
    }
    if (!is_unknown) block = pool.take_idle(now.bytes);
    if (block.data != nullptr) {
      target = block.data;
      capacity = now.bytes;
      return Ok();
    }
  }
  return grow(std::min(now.bytes, is_unknown ? kFirstUnknownBytes : kFirstBytes));
}

Status MessageReader::Impl::end_elements(const PayloadRange& done) {
  Tensor& tensor = *done.tensor;
  if (block.data != nullptr) tensor.bind(std::move(block.owner), block.data, block.size);
  block = {};
  MILLRACE_RETURN_IF_ERROR(tensor.resize(done.dtype, done.dims));
  const int64_t rows = tensor.rank() == 0 ? 1 : tensor.dim(0);
  if (done.expected_rows >= 0 && rows != done.expected_rows)
    return InvalidData("found {} row numbers for {}, expected one for each row", done.expected_rows,
                       describe(tensor));
  Lod lod(std::move(levels));
  levels.clear();
  if (!lod.empty()) MILLRACE_RETURN_IF_ERROR(lod.check(rows));
  tensor.set_lod(std::move(lod));
  return Ok();
}

Status MessageReader::Impl::end_range() {
  const PayloadRange& done = current();
  if (done.kind == RangeKind::kElements) MILLRACE_RETURN_IF_ERROR(end_elements(done));
  if (done.kind == RangeKind::kLodLevel) levels.push_back(std::move(ints));
  if (done.kind == RangeKind::kLodLevel) ints.clear();
  if (done.kind == RangeKind::kRows) {
    for (const int64_t row : done.rows->rows) {
      if (row >= 0 && (done.rows->height <= 0 || row < done.rows->height)) continue;
      return InvalidData("row {} is out of range for selected rows of height {}", row,
                         done.rows->height);
    }
  }
  ++now_at;
  return Ok();
}

// Advances to the next range that needs bytes, or to the end.
Status MessageReader::Impl::next_ranges() {
  while (now_at < ranges.size()) {
    MILLRACE_RETURN_IF_ERROR(begin_range());
    if (current().bytes > 0) return Ok();
    MILLRACE_RETURN_IF_ERROR(end_range());
  }
  phase = Phase::kDone;
  return Ok();
}

MessageReader::MessageReader(BufferPool& pool, uint64_t max_payload_bytes)
    : impl_(std::make_unique<Impl>(pool, max_payload_bytes)) {}
MessageReader::~MessageReader() = default;

bool MessageReader::done() const {
  return impl_->phase == Impl::Phase::kDone;
}

uint64_t MessageReader::received_bytes() const {
  return impl_->received;
}

std::span<std::byte> MessageReader::space() const {
  Impl& now = *impl_;
  if (now.phase == Impl::Phase::kDone) return {};
  if (now.phase == Impl::Phase::kPayload)
    return {now.target + now.at, static_cast<size_t>(now.capacity - now.at)};
  return std::as_writable_bytes(std::span(now.buffer)).subspan(now.at);
}

Status MessageReader::filled(size_t bytes) {
  Impl& now = *impl_;
  now.at += bytes;
  now.received += bytes;
  if (now.phase == Impl::Phase::kPayload) {
    if (now.at < now.capacity) return Ok();
    const uint64_t wanted = now.current().bytes;
    if (now.capacity < wanted) return now.grow(std::min(wanted, 4 * now.capacity));
    MILLRACE_RETURN_IF_ERROR(now.end_range());
    return now.next_ranges();
  }
  if (now.at < now.buffer.size()) return Ok();
  if (now.phase == Impl::Phase::kPrelude) return now.begin_head();
  if (now.at < now.head_bytes) return now.grow_head();
  MILLRACE_RETURN_IF_ERROR(take_head(now.buffer));
  MILLRACE_RETURN_IF_ERROR(now.reserve_payload());
  now.buffer = {};
  now.phase = Impl::Phase::kPayload;
  return now.next_ranges();
}

Status MessageReader::feed(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> to = space();
    if (to.empty()) return InvalidData("found {} bytes after the end of a message", bytes.size());
    const size_t count = std::min(to.size(), bytes.size());
    std::memcpy(to.data(), bytes.data(), count);
    MILLRACE_RETURN_IF_ERROR(filled(count));
    bytes = bytes.subspan(count);
  }
  return Ok();
}

CallReader::CallReader(BufferPool& pool, uint64_t max_payload_bytes)
    : MessageReader(pool, max_payload_bytes) {}
CallReader::~CallReader() = default;

void CallReader::reserve_head_in(MemoryBudget& budget) {
  impl_->in_total = Reservation(&budget);
}

Status CallReader::take_head(std::string_view head) {
  if (admit_) {
    Request envelope;
    uint32_t version = 0;
    if (!read_envelope(head, envelope, version))
      return InvalidData("the head of a call cannot be parsed");
    MILLRACE_RETURN_IF_ERROR(check_version(version));
    MILLRACE_ASSIGN_OR_RETURN(const MessageGrant grant, admit_(envelope));
    MILLRACE_RETURN_IF_ERROR(impl_->accept(grant));
  }
  PsCall call;
  if (!call.ParseFromArray(head.data(), static_cast<int>(head.size())))
    return InvalidData("the head of a call cannot be parsed");
  MILLRACE_RETURN_IF_ERROR(check_version(call.version()));
  request_.method = static_cast<Method>(call.method());
  if (call.method() > UINT8_MAX || method_name(request_.method) == "unknown")
    return InvalidData("there is no method {}", call.method());
  request_.caller = {call.job(), call.trainer(), call.incarnation()};
  request_.epoch = call.epoch();
  request_.step = call.step();
  request_.sequence = call.sequence();
  request_.number = call.number();
  timeout_us_ = call.timeout_us();
  MILLRACE_RETURN_IF_ERROR(impl_->plan_text(request_.text, call.text_bytes()));
  values_.resize(static_cast<size_t>(call.items_size()));
  for (size_t i = 0; i < values_.size(); ++i) {
    const PsValue& from = call.items(static_cast<int>(i));
    Value* const value = from.kind() == 0 ? nullptr : &values_[i];
    request_.items.push_back({from.name(), value, value});
    if (value == nullptr) continue;
    Status planned = impl_->plan_value(from, *value);
    if (!planned.ok())
      return std::move(planned).with_note(fmt::format("value '{}'", printable(from.name())));
  }
  has_head_ = true;
  return Ok();
}

ReplyReader::ReplyReader(BufferPool& pool, Reply& reply, uint64_t max_payload_bytes)
    : MessageReader(pool, max_payload_bytes), reply_(reply) {}
ReplyReader::~ReplyReader() = default;

Status ReplyReader::take_head(std::string_view head) {
  PsReply from;
  if (!from.ParseFromArray(head.data(), static_cast<int>(head.size())))
    return InvalidData("the head of a reply cannot be parsed");
  if (from.version() != kWireVersion) {
    return {
        StatusCode::kDistributed,
        fmt::format("the server uses version {} of the protocol, but this caller uses version {}",
                    from.version(), kWireVersion)};
  }
  reply_.epoch = from.epoch();
  if (from.has_error()) {
    status_ = decode_status(from.error());
    return Ok();
  }
  reply_.number = from.number();
  MILLRACE_RETURN_IF_ERROR(impl_->plan_text(reply_.text, from.text_bytes()));
  reply_.names.clear();
  reply_.values.resize(static_cast<size_t>(from.values_size()));
  for (int i = 0; i < from.values_size(); ++i) {
    reply_.names.push_back(from.values(i).name());
    Status planned = impl_->plan_value(from.values(i), reply_.values[static_cast<size_t>(i)]);
    if (!planned.ok()) {
      return std::move(planned).with_note(
          fmt::format("value '{}'", printable(from.values(i).name())));
    }
  }
  return Ok();
}

}  // namespace millrace::ps
