#include "io/original/pickle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::io {
namespace {

// The opcodes that checkpoint files use, by their byte values in the format.
enum Opcode : uint8_t {
  kMark = '(',
  kEmptyTuple = ')',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kReduce = 'R',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kShortBinBytes = 'C',
  kBinBytes = 'B',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8A,
  kShortBinUnicode = 0x8C,
  kBinBytes8 = 0x8E,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

constexpr std::array<std::tuple<std::string_view, std::string_view, PickleName>, 7> kNames = {{
    {"paddle.distributed.checkpoint.metadata", "Metadata", PickleName::kMetadata},
    {"paddle.distributed.checkpoint.metadata", "LocalTensorMetadata",
     PickleName::kLocalTensorMetadata},
    {"paddle.distributed.checkpoint.metadata", "LocalTensorIndex", PickleName::kLocalTensorIndex},
    {"numpy._core.multiarray", "_reconstruct", PickleName::kReconstruct},
    {"numpy.core.multiarray", "_reconstruct", PickleName::kReconstruct},
    {"numpy", "ndarray", PickleName::kNdarray},
    {"numpy", "dtype", PickleName::kDtype},
}};

class PickleReader {
 public:
  PickleReader(const ReadableFile& file, const PickleLimits& limits)
      : file_(file), limits_(limits) {}

  StatusOr<Pickle> read() {
    MILLRACE_ASSIGN_OR_RETURN(const uint8_t first, byte());
    MILLRACE_ASSIGN_OR_RETURN(const uint8_t version, byte());
    if (first != kProto || version != 4) return InvalidData("expected a pickle of protocol 4");
    while (!stopped_) {
      begin_ = at_;
      MILLRACE_ASSIGN_OR_RETURN(const uint8_t opcode, byte());
      MILLRACE_RETURN_IF_ERROR(step(opcode));
    }
    if (at_ != file_.size())
      return InvalidData("expected the end of the file at byte {}, found {} more bytes", at_,
                         file_.size() - at_);
    return std::move(pickle_);
  }

 private:
  // ---- bytes

  Status fill() {
    buffer_begin_ = at_;
    buffer_.resize(std::min<uint64_t>(size_t{64} << 10U, file_.size() - at_));
    return file_.read(at_, buffer_);
  }

  StatusOr<uint8_t> byte() {
    if (at_ >= file_.size()) return InvalidData("the pickle is cut off at byte {}", at_);
    if (at_ < buffer_begin_ || at_ >= buffer_begin_ + buffer_.size())
      MILLRACE_RETURN_IF_ERROR(fill());
    return static_cast<uint8_t>(buffer_[at_++ - buffer_begin_]);
  }

  StatusOr<uint64_t> number(int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) {
      MILLRACE_ASSIGN_OR_RETURN(const uint8_t next, byte());
      value |= static_cast<uint64_t>(next) << (8U * static_cast<unsigned>(i));
    }
    return value;
  }

  Status check_left(uint64_t size) const {
    if (size <= file_.size() - at_) return Ok();
    return InvalidData("expected {} more bytes at byte {}, found {}", size, at_,
                       file_.size() - at_);
  }

  StatusOr<std::string> text(uint64_t size) {
    MILLRACE_RETURN_IF_ERROR(check_left(size));
    if (size > limits_.max_text_bytes)
      return InvalidData("a text of {} bytes, above {}", size, limits_.max_text_bytes);
    std::string value;
    for (uint64_t i = 0; i < size; ++i) {
      MILLRACE_ASSIGN_OR_RETURN(const uint8_t next, byte());
      value += static_cast<char>(next);
    }
    return value;
  }

  // ---- the stack

  Status push(PickleValue value) {
    if (pickle_.values.size() >= limits_.max_values)
      return {StatusCode::kResource,
              fmt::format("a pickle of more than {} values", limits_.max_values)};
    pickle_.values.push_back(std::move(value));
    return push_ref(static_cast<PickleRef>(pickle_.values.size() - 1));
  }

  Status push_ref(PickleRef ref) {
    if (stack_.size() >= limits_.max_values)
      return {StatusCode::kResource,
              fmt::format("a pickle that needs a stack of more than {}", limits_.max_values)};
    stack_.push_back(ref);
    return Ok();
  }

  // Opcodes may only take values above the topmost mark.
  [[nodiscard]] size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  Status need(size_t count) const {
    if (stack_.size() - floor() >= count) return Ok();
    return malformed("too few values on the stack");
  }

  [[nodiscard]] Status malformed(const char* what) const {
    return InvalidData("malformed pickle at byte {}: {}", begin_, what);
  }

  PickleRef pop() {
    const PickleRef top = stack_.back();
    stack_.pop_back();
    return top;
  }

  StatusOr<std::vector<PickleRef>> pop_to_mark() {
    if (marks_.empty()) return malformed("no mark");
    std::vector<PickleRef> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                 stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  template <typename T>
  [[nodiscard]] T* value_at(PickleRef ref) {
    return std::get_if<T>(&pickle_.values[static_cast<size_t>(ref)]);
  }

  // ---- opcodes

  Status tuple(size_t count) {
    MILLRACE_RETURN_IF_ERROR(need(count));
    PickleTuple made;
    made.items.assign(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return push(std::move(made));
  }

  Status tuple_to_mark() {
    MILLRACE_ASSIGN_OR_RETURN(std::vector<PickleRef> items, pop_to_mark());
    return push(PickleTuple{std::move(items)});
  }

  Status append(std::vector<PickleRef> items) {
    MILLRACE_RETURN_IF_ERROR(need(1));
    auto* const list = value_at<PickleList>(stack_.back());
    if (list == nullptr) return malformed("list items for a value that is not a list");
    list->items.insert(list->items.end(), items.begin(), items.end());
    return Ok();
  }

  Status set_items(const std::vector<PickleRef>& items) {
    MILLRACE_RETURN_IF_ERROR(need(1));
    auto* const dict = value_at<PickleDict>(stack_.back());
    if (dict == nullptr || items.size() % 2 != 0)
      return malformed("dict items for a value that is not a dict");
    for (size_t i = 0; i < items.size(); i += 2) dict->items.emplace_back(items[i], items[i + 1]);
    return Ok();
  }

  Status global() {
    MILLRACE_RETURN_IF_ERROR(need(2));
    const auto* const name = value_at<std::string>(pop());
    const auto* const module = value_at<std::string>(pop());
    if (name == nullptr || module == nullptr) return malformed("a name that is not a string");
    for (const auto& [known_module, known_name, known] : kNames)
      if (*module == known_module && *name == known_name) return push(known);
    return Unimplemented(
        "the pickle at byte {} names {}, which checkpoints do not hold; nothing "
        "in it was executed",
        begin_, in_quotes(*module + "." + *name));
  }

  // NEWOBJ and REDUCE. The code that uses the object checks the arguments.
  Status make_object(bool by_class) {
    MILLRACE_RETURN_IF_ERROR(need(2));
    const PickleRef arguments = pop();
    const auto* const name = value_at<PickleName>(pop());
    if (name == nullptr || value_at<PickleTuple>(arguments) == nullptr)
      return malformed("an object whose class is not a known name");
    const bool metadata = *name == PickleName::kMetadata ||
                          *name == PickleName::kLocalTensorMetadata ||
                          *name == PickleName::kLocalTensorIndex;
    if (metadata != by_class || *name == PickleName::kNdarray)
      return malformed("an object that is created by the wrong opcode");
    const PickleName held = *name;  // push may reallocate the values
    return push(PickleObject{held, arguments, -1});
  }

  Status build() {
    MILLRACE_RETURN_IF_ERROR(need(2));
    const PickleRef state = pop();
    auto* const object = value_at<PickleObject>(stack_.back());
    if (object == nullptr || object->state != -1)
      return malformed("a state for a value that takes none");
    object->state = state;
    return Ok();
  }

  Status get(uint64_t index) {
    if (index >= memo_.size()) return malformed("a reference to a missing memo entry");
    return push_ref(memo_[index]);
  }

  Status memoize() {
    MILLRACE_RETURN_IF_ERROR(need(1));
    if (memo_.size() >= limits_.max_values)
      return {StatusCode::kResource,
              fmt::format("a pickle with more than {} memo entries", limits_.max_values)};
    memo_.push_back(stack_.back());
    return Ok();
  }

  Status bytes(int length_bytes) {
    MILLRACE_ASSIGN_OR_RETURN(const uint64_t size, number(length_bytes));
    MILLRACE_RETURN_IF_ERROR(check_left(size));
    const uint64_t begin = at_;
    at_ += size;
    return push(PickleBytes{begin, size});
  }

  Status push_text(int length_bytes) {
    MILLRACE_ASSIGN_OR_RETURN(const uint64_t size, number(length_bytes));
    MILLRACE_ASSIGN_OR_RETURN(std::string value, text(size));
    return push(std::move(value));
  }

  Status push_number(int length_bytes) {
    MILLRACE_ASSIGN_OR_RETURN(const uint64_t value, number(length_bytes));
    if (length_bytes == 4) return push(static_cast<int64_t>(static_cast<int32_t>(value)));
    return push(static_cast<int64_t>(value));
  }

  // Two's complement, little-endian, with the minimum number of bytes.
  Status push_long() {
    MILLRACE_ASSIGN_OR_RETURN(const uint8_t size, byte());
    if (size > 8) return malformed("a number of more than 8 bytes");
    MILLRACE_ASSIGN_OR_RETURN(uint64_t value, number(size));
    const unsigned bits = 8U * size;
    if (size > 0 && size < 8 && (value >> (bits - 1) & 1U) != 0) value |= ~uint64_t{0} << bits;
    return push(static_cast<int64_t>(value));
  }

  Status stop() {
    MILLRACE_RETURN_IF_ERROR(need(1));
    if (stack_.size() != 1 || !marks_.empty()) return malformed("values are left on the stack");
    pickle_.root = stack_.back();
    stopped_ = true;
    return Ok();
  }

  Status step_structure(uint8_t opcode);
  Status step(uint8_t opcode);

  const ReadableFile& file_;
  PickleLimits limits_;
  Pickle pickle_;
  std::vector<PickleRef> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleRef> memo_;
  std::vector<std::byte> buffer_;
  uint64_t buffer_begin_ = 0;
  uint64_t at_ = 0;
  uint64_t begin_ = 0;  // offset of the current opcode
  bool stopped_ = false;
};

// Opcodes that build values from values on the stack.
Status PickleReader::step_structure(uint8_t opcode) {
  switch (opcode) {
    case kTuple:
      return tuple_to_mark();
    case kTuple1:
    case kTuple2:
    case kTuple3:
      return tuple(opcode - kTuple1 + 1U);
    case kAppend: {
      MILLRACE_RETURN_IF_ERROR(need(2));
      return append({pop()});
    }
    case kAppends: {
      MILLRACE_ASSIGN_OR_RETURN(std::vector<PickleRef> items, pop_to_mark());
      return append(std::move(items));
    }
    case kSetItem: {
      MILLRACE_RETURN_IF_ERROR(need(3));
      const PickleRef value = pop();
      return set_items({pop(), value});
    }
    case kSetItems: {
      MILLRACE_ASSIGN_OR_RETURN(const std::vector<PickleRef> items, pop_to_mark());
      return set_items(items);
    }
    case kStackGlobal:
      return global();
    case kNewObj:
    case kReduce:
      return make_object(opcode == kNewObj);
    case kBuild:
      return build();
    case kMemoize:
      return memoize();
    case kStop:
      return stop();
    default:
      return Unimplemented(
          "the pickle has opcode 0x{:02x} at byte {}, which checkpoints do not use", opcode,
          begin_);
  }
}

Status PickleReader::step(uint8_t opcode) {
  switch (opcode) {
    case kFrame:
      return number(8).status();
    case kMark:
      if (marks_.size() >= limits_.max_values) return malformed("too many marks");
      marks_.push_back(stack_.size());
      return Ok();
    case kNone:
      return push(PickleNone());
    case kNewTrue:
    case kNewFalse:
      return push(opcode == kNewTrue);
    case kBinInt1:
      return push_number(1);
    case kBinInt2:
      return push_number(2);
    case kBinInt:
      return push_number(4);
    case kLong1:
      return push_long();
    case kShortBinUnicode:
      return push_text(1);
    case kBinUnicode:
      return push_text(4);
    case kShortBinBytes:
      return bytes(1);
    case kBinBytes:
      return bytes(4);
    case kBinBytes8:
      return bytes(8);
    case kEmptyTuple:
      return push(PickleTuple());
    case kEmptyList:
      return push(PickleList());
    case kEmptyDict:
      return push(PickleDict());
    case kBinGet:
    case kLongBinGet: {
      MILLRACE_ASSIGN_OR_RETURN(const uint64_t index, number(opcode == kBinGet ? 1 : 4));
      return get(index);
    }
    default:
      return step_structure(opcode);
  }
}

}  // namespace

PickleRef Pickle::find(PickleRef dict, std::string_view key) const {
  const auto* const members = get<PickleDict>(dict);
  PickleRef found = -1;
  if (members == nullptr) return found;
  for (const auto& [name, value] : members->items) {
    const auto* const text = get<std::string>(name);
    if (text != nullptr && *text == key) found = value;
  }
  return found;
}

StatusOr<Pickle> read_pickle(const ReadableFile& file, const PickleLimits& limits) {
  StatusOr<Pickle> pickle = PickleReader(file, limits).read();
  if (!pickle.ok()) return std::move(pickle).status().in_file(file.path());
  return pickle;
}

}  // namespace millrace::io
