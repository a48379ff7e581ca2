#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/multi_slot/arrow_rows.h"

namespace millrace::testing {

/// An Arrow column that tests build by hand, as the C data interface describes it.
struct TestColumn {
  std::string name;
  std::string format;
  int64_t length = 0;
  std::vector<std::optional<std::string>> buffers = {};  ///< bytes; none: a null pointer
  std::vector<TestColumn> children = {};
  std::vector<TestColumn> dictionary = {};  ///< at most one
  int64_t offset = 0;
  int64_t null_count = -1;
};

/// The bytes of numbers.
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// A stream of structs with these columns: one array for each batch. It counts what is released.
class TestStream {
 public:
  /// \param rows  length of the struct in each batch
  TestStream(std::vector<std::vector<TestColumn>> batches, std::vector<int64_t> rows)
      : batches_(std::move(batches)), rows_(std::move(rows)) {}

  /// Opens a new pass; the stream must outlive it.
  io::ArrowOpener opener() {
    return [this]() -> StatusOr<std::shared_ptr<ArrowArrayStream>> {
      next_ = 0;
      auto stream = std::make_shared<ArrowArrayStream>();
      *stream = {&get_schema, &get_next, &get_last_error, &release_stream, this};
      return stream;
    };
  }
  /// Arrays, schemas and streams that are not released yet.
  [[nodiscard]] int open() const { return open_; }
  std::string error;        ///< get_next() fails with it after the last batch
  int64_t row_offset = 0;   ///< of the structs
  int64_t null_rows = 0;    ///< of the structs
  std::string root = "+s";  ///< format of the stream

 private:
  static TestStream* of(void* data) { return static_cast<TestStream*>(data); }

  ArrowSchema* describe(const TestColumn& column) {
    schema_children_.emplace_back();
    auto& children = schema_children_.back();
    for (const TestColumn& child : column.children) children.push_back(describe(child));
    schemas_.push_back({column.format.c_str(), column.name.c_str(), nullptr, 0,
                        static_cast<int64_t>(children.size()), children.data(),
                        column.dictionary.empty() ? nullptr : describe(column.dictionary[0]),
                        nullptr, nullptr});
    return &schemas_.back();
  }
  ArrowArray* fill(const TestColumn& column) {
    pointers_.emplace_back();
    auto& pointers = pointers_.back();
    for (const auto& buffer : column.buffers)
      pointers.push_back(buffer.has_value() ? buffer->data() : nullptr);
    array_children_.emplace_back();
    auto& children = array_children_.back();
    for (const TestColumn& child : column.children) children.push_back(fill(child));
    arrays_.push_back(
        {column.length, column.null_count, column.offset, static_cast<int64_t>(pointers.size()),
         static_cast<int64_t>(children.size()), pointers.data(), children.data(),
         column.dictionary.empty() ? nullptr : fill(column.dictionary[0]), nullptr, nullptr});
    return &arrays_.back();
  }
  static int get_schema(ArrowArrayStream* stream, ArrowSchema* out) {
    TestStream* const self = of(stream->private_data);
    self->roots_.push_back({"", self->root, 0, {}, self->batches_.front()});
    *out = *self->describe(self->roots_.back());
    out->release = [](ArrowSchema* schema) {
      --of(schema->private_data)->open_;
      schema->release = nullptr;
    };
    out->private_data = self;
    ++self->open_;
    return 0;
  }
  static int get_next(ArrowArrayStream* stream, ArrowArray* out) {
    TestStream* const self = of(stream->private_data);
    *out = {};
    if (self->next_ == self->batches_.size()) return self->error.empty() ? 0 : 5;
    const size_t batch = self->next_++;
    self->roots_.push_back({"",
                            "+s",
                            self->rows_[batch],
                            {std::nullopt},
                            self->batches_[batch],
                            {},
                            self->row_offset,
                            self->null_rows});
    *out = *self->fill(self->roots_.back());
    out->release = [](ArrowArray* array) {
      --of(array->private_data)->open_;
      array->release = nullptr;
    };
    out->private_data = self;
    ++self->open_;
    return 0;
  }
  static const char* get_last_error(ArrowArrayStream* stream) {
    const std::string& error = of(stream->private_data)->error;
    return error.empty() ? nullptr : error.c_str();
  }
  static void release_stream(ArrowArrayStream* stream) { stream->release = nullptr; }

  std::vector<std::vector<TestColumn>> batches_;
  std::vector<int64_t> rows_;
  size_t next_ = 0;
  int open_ = 0;
  // deques: their elements keep their addresses
  std::deque<TestColumn> roots_;
  std::deque<ArrowSchema> schemas_;
  std::deque<ArrowArray> arrays_;
  std::deque<std::vector<ArrowSchema*>> schema_children_;
  std::deque<std::vector<ArrowArray*>> array_children_;
  std::deque<std::vector<const void*>> pointers_;
};

}  // namespace millrace::testing
