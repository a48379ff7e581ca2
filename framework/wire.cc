#include "framework/wire.h"

#include <bit>
#include <cstring>

namespace millrace::wire {

bool Reader::read_varint(uint64_t& value) {
  value = 0;
  for (uint32_t shift = 0; shift < 70; shift += 7) {
    if (position_ == end_) return fail("truncated varint");
    const auto byte = static_cast<uint8_t>(*position_++);
    if (shift == 63 && byte > 1) return fail("varint above 64 bits");
    value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
    if ((byte & 0x80U) == 0) return true;
  }
  return fail("varint above 64 bits");
}

bool Reader::next(Field& field) {
  if (position_ == end_) return false;
  const char* const begin = position_;
  uint64_t tag = 0;
  if (!read_varint(tag)) return false;
  const uint64_t number = tag >> 3U;
  if (number == 0 || number > 0x1FFFFFFF) return fail("field number out of range");
  field.number = static_cast<uint32_t>(number);
  field.bytes = {};
  switch (tag & 7U) {
    case 0:
      field.type = Type::kVarint;
      if (!read_varint(field.varint)) return false;
      break;
    case 1:
      field.type = Type::kFixed64;
      if (end_ - position_ < 8) return fail("truncated 64-bit field");
      std::memcpy(&field.varint, position_, 8);
      position_ += 8;
      break;
    case 2: {
      field.type = Type::kBytes;
      uint64_t length = 0;
      if (!read_varint(length)) return false;
      if (length > static_cast<uint64_t>(end_ - position_))
        return fail("truncated: length field beyond the end");
      field.bytes = llvm::StringRef(position_, static_cast<size_t>(length));
      position_ += length;
      break;
    }
    case 5: {
      field.type = Type::kFixed32;
      if (end_ - position_ < 4) return fail("truncated 32-bit field");
      uint32_t value = 0;
      std::memcpy(&value, position_, 4);
      field.varint = value;
      position_ += 4;
      break;
    }
    default:
      return fail("invalid wire type (groups do not occur in programs)");
  }
  field.encoded = llvm::StringRef(begin, static_cast<size_t>(position_ - begin));
  return true;
}

size_t varint_size(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7U) ++size;
  return size;
}

namespace {

// Collects a few varints, so that the output string grows only once for all of them.
class Head {
 public:
  Head& varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7U)
      bytes_[size_++] = static_cast<char>((value & 0x7FU) | 0x80U);
    bytes_[size_++] = static_cast<char>(value);
    return *this;
  }
  Head& tag(uint32_t number, Type type) {
    return varint((static_cast<uint64_t>(number) << 3U) | static_cast<uint64_t>(type));
  }
  [[nodiscard]] std::string_view view() const { return {bytes_, size_}; }

 private:
  char bytes_[20];  // two varints of ten bytes
  size_t size_ = 0;
};

}  // namespace

void put_varint(std::string& out, uint64_t value) {
  out.append(Head().varint(value).view());
}

void put_tag(std::string& out, uint32_t number, Type type) {
  out.append(Head().tag(number, type).view());
}

void put_int(std::string& out, uint32_t number, int64_t value) {
  out.append(Head().tag(number, Type::kVarint).varint(static_cast<uint64_t>(value)).view());
}

void put_bytes(std::string& out, uint32_t number, llvm::StringRef value) {
  out.append(Head().tag(number, Type::kBytes).varint(value.size()).view());
  out.append(value.data(), value.size());
}

size_t begin_message(std::string& out, uint32_t number) {
  put_tag(out, number, Type::kBytes);
  out.push_back('\0');
  return out.size();
}

void end_message(std::string& out, size_t begin) {
  const size_t size = out.size() - begin;
  if (size < 0x80) {
    out[begin - 1] = static_cast<char>(size);
  } else {
    out.replace(begin - 1, 1, Head().varint(size).view());
  }
}

void put_float(std::string& out, uint32_t number, float value) {
  put_tag(out, number, Type::kFixed32);
  const auto bits = std::bit_cast<uint32_t>(value);
  out.append(reinterpret_cast<const char*>(&bits), sizeof bits);
}

void put_double(std::string& out, uint32_t number, double value) {
  put_tag(out, number, Type::kFixed64);
  const auto bits = std::bit_cast<uint64_t>(value);
  out.append(reinterpret_cast<const char*>(&bits), sizeof bits);
}

}  // namespace millrace::wire
