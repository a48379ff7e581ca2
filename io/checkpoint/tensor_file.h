#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "io/checkpoint/safetensors.h"

/// Values in one safetensors file, under their own names. Facts that the format cannot express are
/// in its metadata: `lod:<name>` is the LoD as a JSON list of levels; `rows:<name>` the height of
/// selected rows, whose row numbers are the tensor `<name>.rows`; `dtype:<name>` the element type
/// if stored_form() has changed it; `array:<name>` the length of a tensor array, whose elements
/// that were written are the tensors `<name>[<i>]`.
namespace millrace::io {

/// An open file. Thread-safety: concurrent readers.
class TensorFile {
 public:
  /// Errors: those of read_safetensors_header(); kInvalidData for inconsistent metadata of the
  /// kinds above.
  static StatusOr<TensorFile> open(const std::string& path);

  /// All names, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Reads a value. Errors: kNotFound, kIo, kResource, kInvalidData for a LoD or row numbers that
  /// do not match the data.
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const;
  /// Total bytes of the data.
  [[nodiscard]] uint64_t bytes() const;

 private:
  [[nodiscard]] const SafetensorsEntry* find(const std::string& name) const;
  Status read_dtypes(const std::string& path);
  Status check_rows(const std::string& path) const;
  Status check_arrays(const std::string& path);
  [[nodiscard]] StatusOr<Tensor> read(const SafetensorsEntry& entry) const;
  [[nodiscard]] StatusOr<Tensor> load_tensor(const std::string& name) const;
  [[nodiscard]] StatusOr<SelectedRows> load_rows(const std::string& name,
                                                 const std::string& height) const;

  std::unique_ptr<ReadableFile> file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t> entries_;  ///< index in the header
  std::map<std::string, size_t> arrays_;   ///< lengths of the arrays by name
};

/// What write_tensor_file() must know about a value before it loads the value.
struct TensorFileEntry {
  std::string name;
  VarKind kind = VarKind::kLodTensor;  ///< or kSelectedRows, kLodTensorArray
  DType dtype = DType::kFloat32;
  Dims dims;
  Lod lod;
  int64_t height = 0;                     ///< selected rows only
  std::vector<TensorFileEntry> elements;  ///< of an array; unnamed ones were never written
};

/// The entry for a value. Errors: kUnimplemented for anything but a dense tensor, selected rows or
/// a tensor array.
StatusOr<TensorFileEntry> tensor_file_entry(const std::string& name, const Value& value);

/// Writes a file; it appears by rename. Values are loaded one at a time and released after use.
/// \param load  returns the value of an entry by its name
/// Errors: those of lay_out_safetensors() and of `load`; kUsage if the file exists and may not be
/// replaced; kIo.
Status write_tensor_file(const std::string& path, const std::vector<TensorFileEntry>& entries,
                         const std::function<StatusOr<Value>(const std::string&)>& load,
                         Replace replace);

}  // namespace millrace::io
