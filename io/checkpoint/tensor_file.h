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

/// Values in one safetensors file, under their own names. What the layout does not have stands in
/// its metadata: `lod:<name>` is the LoD as a JSON list of levels, `rows:<name>` the height of
/// selected rows, whose row numbers are the tensor `<name>.rows`, `dtype:<name>` the element type
/// of what stored_form() has changed, `array:<name>` the length of a tensor array, whose
/// elements that were written are the tensors `<name>[<i>]`.
namespace millrace::io {

/// A file that is open. Thread-safety: concurrent readers.
class TensorFile {
 public:
  /// Errors: those of read_safetensors_header(); kInvalidData for metadata of ours that does not
  /// fit.
  static StatusOr<TensorFile> open(const std::string& path);

  /// Sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Errors: kNotFound, kIo, kResource, kInvalidData for a LoD or rows that do not fit.
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const;
  /// Bytes of the data.
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
  std::map<std::string, size_t> arrays_;   ///< and their lengths
};

/// What write_tensor_file() must know of a value before it gets its bytes.
struct TensorFileEntry {
  std::string name;
  VarKind kind = VarKind::kLodTensor;  ///< or kSelectedRows, kLodTensorArray
  DType dtype = DType::kFloat32;
  Dims dims;
  Lod lod;
  int64_t height = 0;                     ///< of selected rows
  std::vector<TensorFileEntry> elements;  ///< of an array; one without name was never written
};

/// Facts of a value. Errors: kUnimplemented for what is no dense tensor, selected rows or tensor
/// array.
StatusOr<TensorFileEntry> tensor_file_entry(const std::string& name, const Value& value);

/// Writes a file; it appears by rename. Values are asked for one after another and let go.
/// \param load  gives the value of an entry by its name
/// Errors: those of lay_out_safetensors(), of `load`, kUsage if the file exists and may not be
/// replaced; kIo.
Status write_tensor_file(const std::string& path, const std::vector<TensorFileEntry>& entries,
                         const std::function<StatusOr<Value>(const std::string&)>& load,
                         Replace replace);

}  // namespace millrace::io
