#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/tensor/layout.h"
#include "proto/ps_service.pb.h"
#include "ps/transport/codec.h"
#include "ps/transport/error_codec.h"
#include "ps/transport/wire_format.h"

namespace millrace::ps {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers and elements are sent in their memory representation");

template <typename T>
void add_piece(OutgoingMessage& message, const T* data, size_t count) {
  if (count == 0) return;
  message.payload.push_back(std::as_bytes(std::span<const T>(data, count)));
  message.payload_bytes += count * sizeof(T);
}

// Describes a tensor in the head and adds its bytes to the payload.
Status add_tensor(const Tensor& tensor, PsTensor& to, OutgoingMessage& message) {
  if (!tensor.initialized()) {
    to.set_absent(true);
    return Ok();
  }
  to.set_dtype(static_cast<int32_t>(tensor.dtype()));
  for (const int64_t dim : tensor.dims()) to.add_dims(dim);
  for (size_t i = 0; i < tensor.lod().size(); ++i) {
    const llvm::ArrayRef<int64_t> level = tensor.lod().level(i);
    to.add_lod_sizes(level.size());
    add_piece(message, level.data(), level.size());
  }
  const Tensor* from = &tensor;
  if (tensor.layout() != nullptr) {
    MILLRACE_RETURN_IF_ERROR(copy_plain(tensor, message.plain.emplace_back()));
    from = &message.plain.back();
  }
  add_piece(message, from->raw(), static_cast<size_t>(from->bytes()));
  return Ok();
}

Status add_content(const Value& value, PsValue& to, OutgoingMessage& message) {
  to.set_kind(static_cast<int32_t>(value.kind()));
  if (const auto* const tensor = value.get_if<Tensor>())
    return add_tensor(*tensor, *to.add_tensors(), message);
  if (const auto* const rows = value.get_if<SelectedRows>()) {
    to.set_rows(rows->rows.size());
    to.set_height(rows->height);
    add_piece(message, rows->rows.data(), rows->rows.size());
    return add_tensor(rows->value, *to.add_tensors(), message);
  }
  if (const auto* const array = value.get_if<TensorArray>()) {
    for (const Tensor& element : *array)
      MILLRACE_RETURN_IF_ERROR(add_tensor(element, *to.add_tensors(), message));
    return Ok();
  }
  if (const auto* const strings = value.get_if<Strings>()) {
    for (const std::string& text : *strings) {
      to.add_string_sizes(text.size());
      add_piece(message, text.data(), text.size());
    }
    return Ok();
  }
  if (value.kind() == VarKind::kRaw) return Ok();  // has no content
  return InvalidArgument("{} cannot be sent to another process", describe(value));
}

Status add_value(std::string_view name, const Value* value, PsValue& to, OutgoingMessage& message) {
  to.set_name(std::string(name));
  if (value == nullptr) return Ok();
  Status done = add_content(*value, to, message);
  if (done.ok()) return done;
  Location place;
  place.var = std::string(name);
  return std::move(done).at(place);
}

// Writes the magic string, the length of the head, and the head.
template <typename Head>
Status write_head(const Head& head, std::string& out) {
  const size_t length = head.ByteSizeLong();
  if (length > kMaxHeadBytes) {
    return Status(StatusCode::kResource,
                  fmt::format("a message's head has {} bytes, expected at most {}", length,
                              kMaxHeadBytes))
        .with_hint("send fewer vars in one call");
  }
  out.assign(kWireMark);
  const auto number = static_cast<uint32_t>(length);
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
  return head.AppendToString(&out) ? Ok() : Internal("a message's head cannot be written");
}

}  // namespace

Status encode_request(const Request& request, uint64_t timeout_us, OutgoingMessage& message) {
  PsCall head;
  head.set_version(kWireVersion);
  head.set_method(static_cast<uint32_t>(request.method));
  head.set_job(request.caller.job);
  head.set_trainer(request.caller.trainer);
  head.set_incarnation(request.caller.incarnation);
  head.set_epoch(request.epoch);
  head.set_step(request.step);
  head.set_sequence(request.sequence);
  head.set_number(request.number);
  head.set_text_bytes(request.text.size());
  head.set_timeout_us(timeout_us);
  add_piece(message, request.text.data(), request.text.size());
  for (const RequestItem& item : request.items)
    MILLRACE_RETURN_IF_ERROR(add_value(item.name, item.value, *head.add_items(), message));
  return write_head(head, message.head);
}

struct ReplyWriter::Impl {
  BufferPool& pool;
  PsReply head;
  OutgoingMessage message;
  std::string text;

  // Copies the payload entries from `first` on into one block.
  Status keep(size_t first) {
    size_t bytes = 0;
    for (size_t i = first; i < message.payload.size(); ++i) bytes += message.payload[i].size();
    if (bytes == 0) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(BufferPool::Block block, pool.take(bytes));
    std::byte* to = block.data;
    for (size_t i = first; i < message.payload.size(); ++i) {
      const std::span<const std::byte> piece = message.payload[i];
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
    message.payload.resize(first);
    message.payload.emplace_back(block.data, bytes);
    message.blocks.push_back(std::move(block.owner));
    return Ok();
  }
};

ReplyWriter::ReplyWriter(BufferPool& pool) : impl_(new Impl{pool, {}, {}, {}}) {}
ReplyWriter::~ReplyWriter() = default;

Status ReplyWriter::put(std::string_view name, const Value& value) {
  OutgoingMessage& message = impl_->message;
  const size_t first = message.payload.size();
  Status done = add_value(name, &value, *impl_->head.add_values(), message);
  if (done.ok()) done = impl_->keep(first);
  message.plain.clear();
  return done;
}

StatusOr<std::byte*> ReplyWriter::put_room(std::string_view name, DType dtype,
                                           llvm::ArrayRef<int64_t> dims) {
  const std::optional<int64_t> count = element_count(dims);
  if (!count || *count < 0) return InvalidArgument("'{}': invalid tensor dims", name);
  const auto bytes = static_cast<size_t>(*count * dtype_size(dtype));
  MILLRACE_ASSIGN_OR_RETURN(BufferPool::Block block, impl_->pool.take(std::max<size_t>(bytes, 1)));
  PsValue& to = *impl_->head.add_values();
  to.set_name(std::string(name));
  to.set_kind(static_cast<int32_t>(VarKind::kLodTensor));
  PsTensor& tensor = *to.add_tensors();
  tensor.set_dtype(static_cast<int32_t>(dtype));
  for (const int64_t dim : dims) tensor.add_dims(dim);
  add_piece(impl_->message, block.data, bytes);
  std::byte* const room = block.data;
  impl_->message.blocks.push_back(std::move(block.owner));
  return room;
}

void ReplyWriter::set_epoch(uint64_t epoch) {
  impl_->head.set_epoch(epoch);
}

void ReplyWriter::set_number(int64_t number) {
  impl_->head.set_number(number);
}

void ReplyWriter::set_text(std::string text) {
  impl_->text = std::move(text);
}

OutgoingMessage ReplyWriter::finish(const Status& status) {
  OutgoingMessage message = std::move(impl_->message);
  PsReply& head = impl_->head;
  head.set_version(kWireVersion);
  Status written = status;
  if (written.ok()) {
    head.set_text_bytes(impl_->text.size());
    if (!impl_->text.empty()) {
      auto text = std::make_shared<std::string>(std::move(impl_->text));
      message.payload.insert(message.payload.begin(), std::as_bytes(std::span(*text)));
      message.payload_bytes += text->size();
      message.blocks.push_back(std::move(text));
    }
    written = write_head(head, message.head);
  }
  if (!written.ok()) {
    message = {};
    PsReply refusal;
    refusal.set_version(kWireVersion);
    refusal.set_epoch(head.epoch());
    encode_status(written, *refusal.mutable_error());
    // Cannot fail: the size of an error is bounded.
    static_cast<void>(write_head(refusal, message.head));
  }
  return message;
}

}  // namespace millrace::ps
