#pragma once

#include <cstdint>
#include <string>

#include <llvm/ADT/StringRef.h>

/// The part of the Protocol Buffers wire encoding that program files use. docs/decisions/0002
/// explains why messages are parsed here and not with generated classes.
namespace millrace::wire {

/// Wire types. Groups, which are deprecated in the format, are errors.
enum class Type : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// Field numbers of the messages of proto/program.proto.
namespace program_field {
inline constexpr uint32_t kBlocks = 1, kVersion = 4, kOpVersionMap = 5;
}
namespace block_field {
inline constexpr uint32_t kIdx = 1, kParentIdx = 2, kVars = 3, kOps = 4, kForwardBlockIdx = 5;
}
namespace op_field {
inline constexpr uint32_t kInputs = 1, kOutputs = 2, kType = 3, kAttrs = 4, kIsTarget = 5;
}
namespace slot_field {
inline constexpr uint32_t kParameter = 1, kArguments = 2;
}
namespace attr_field {
inline constexpr uint32_t kName = 1, kType = 2, kI = 3, kF = 4, kS = 5, kInts = 6, kFloats = 7,
                          kStrings = 8, kB = 10, kBools = 11, kBlockIdx = 12, kL = 13,
                          kBlocksIdx = 14, kLongs = 15, kFloat64s = 16, kVarName = 17,
                          kVarsName = 18, kFloat64 = 19, kScalar = 20, kScalars = 21;
}
namespace var_field {
inline constexpr uint32_t kName = 1, kType = 2, kPersistable = 3, kNeedCheckFeed = 4,
                          kIsParameter = 5, kStopGradient = 6;
}

/// One field of a message.
struct Field {
  uint32_t number = 0;
  Type type = Type::kVarint;
  uint64_t varint = 0;      ///< value of a kVarint, kFixed32 or kFixed64 field
  llvm::StringRef bytes;    ///< payload of a kBytes field
  llvm::StringRef encoded;  ///< the whole field, tag included
};

/// Cursor over the fields of one message.
class Reader {
 public:
  explicit Reader(llvm::StringRef message)
      : position_(message.data()), end_(message.data() + message.size()) {}

  /// Reads the next field. Returns false at the end and on an error; failed() tells which.
  bool next(Field& field);
  [[nodiscard]] bool failed() const { return error_ != nullptr; }
  /// What is wrong ("truncated varint", ...). May be called only if failed().
  [[nodiscard]] const char* error() const { return error_; }
  /// Where reading stopped.
  [[nodiscard]] const char* position() const { return position_; }

 private:
  /// Reads one number of at most ten bytes. False on an error.
  bool read_varint(uint64_t& value);
  bool fail(const char* error) {
    error_ = error;
    return false;
  }

  const char* position_;         ///< the next tag
  const char* end_;              ///< one past the last byte of the message
  const char* error_ = nullptr;  ///< a literal; null: none
};

// ---- writing

/// Append encoded numbers and fields to `out`; a tag is the field number and the wire type.
void put_varint(std::string& out, uint64_t value);
void put_tag(std::string& out, uint32_t number, Type type);
/// Writes int32 and int64 fields. Negative numbers take ten bytes, as the format requires.
void put_int(std::string& out, uint32_t number, int64_t value);
void put_bytes(std::string& out, uint32_t number, llvm::StringRef value);
/// Writes a message field from start to end: everything appended between the two calls is its
/// content. begin_message() returns the value to pass to end_message(). One byte is reserved for
/// the length; contents of 128 bytes and more are moved once.
size_t begin_message(std::string& out, uint32_t number);
void end_message(std::string& out, size_t begin);
/// Write fixed fields of four and eight bytes, little endian.
void put_float(std::string& out, uint32_t number, float value);
void put_double(std::string& out, uint32_t number, double value);
/// Number of bytes put_varint() writes.
size_t varint_size(uint64_t value);

}  // namespace millrace::wire
