#include "jobs/data/data_set.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/multi_slot/line_stream.h"
#include "io/npz.h"
#include "jobs/data/csv.h"

namespace millrace::jobs {
namespace {

constexpr int64_t kMaxDataBytes = int64_t{1} << 40;

struct ColumnRange {
  std::string var;
  size_t first = 0;
  size_t last = 0;
};

StatusOr<std::vector<ColumnRange>> parse_columns(const std::string& text) {
  const auto fail = [&](llvm::StringRef part) {
    return Status(StatusCode::kUsage,
                  fmt::format("options.columns: expected VAR=FIRST:LAST or VAR=COLUMN, found '{}'",
                              part.str()));
  };
  std::vector<ColumnRange> ranges;
  llvm::SmallVector<llvm::StringRef, 8> parts;
  llvm::StringRef(text).split(parts, ',', -1, false);
  for (const llvm::StringRef part : parts) {
    const auto [var, place] = part.split('=');
    const auto [first, last] = place.split(':');
    ColumnRange range;
    range.var = var.str();
    if (var.empty() || first.getAsInteger(10, range.first)) return fail(part);
    range.last = range.first;
    if (!last.empty() && last.getAsInteger(10, range.last)) return fail(part);
    if (range.last < range.first) return fail(part);
    if (llvm::any_of(ranges, [&](const ColumnRange& other) { return other.var == range.var; }))
      return Status(StatusCode::kUsage,
                    fmt::format("options.columns: var '{}' is named twice", range.var));
    ranges.push_back(std::move(range));
  }
  if (ranges.empty()) return fail(text);
  return ranges;
}

// True if the type can hold the cell: integer types whole numbers only. Cells are doubles, so whole
// numbers from 2^53 on may have lost their last digits.
template <typename T>
bool fits(double cell) {
  if constexpr (std::is_floating_point_v<T>)
    return !std::isfinite(cell) || std::isfinite(static_cast<T>(cell));
  constexpr int kExactDigits = std::numeric_limits<double>::digits;
  const double end = std::ldexp(1.0, std::min(std::numeric_limits<T>::digits, kExactDigits));
  const double begin = std::numeric_limits<T>::digits > kExactDigits ? 1 - end : -end;
  return std::trunc(cell) == cell && cell >= begin && cell < end;
}

template <typename T>
Status fill_data_set(const CsvTable& table, const ColumnRange& range, Tensor& to) {
  T* out = to.data<T>();
  const size_t rows = table.cells.size() / table.columns;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = range.first; c <= range.last; ++c) {
      const double cell = table.cells[r * table.columns + c];
      if (!fits<T>(cell))
        return InvalidData("var '{}', example {}: {} is not a valid {}", range.var, r, cell,
                           dtype_name(to.dtype()));
      *out++ = static_cast<T>(cell);
    }
  }
  return Ok();
}

StatusOr<Tensor> column_tensor(const CsvTable& table, const ColumnRange& range,
                               const Program& program) {
  const Var* const var = program.root().find_var(range.var);
  if (var == nullptr)
    return Status(StatusCode::kUsage,
                  fmt::format("options.columns: the program has no var '{}'", range.var));
  if (range.last >= table.columns) {
    return InvalidData("var '{}': column {} does not exist, a line has {} columns", range.var,
                       range.last, table.columns);
  }
  Dims dims(var->dims().begin(), var->dims().end());
  if (dims.empty()) dims.push_back(-1);
  int64_t width = 1;
  for (size_t i = 1; i < dims.size(); ++i) width *= dims[i];
  if (width != static_cast<int64_t>(range.last - range.first + 1)) {
    return InvalidData("var '{}': expected {} columns for its dims, found {}", range.var, width,
                       range.last - range.first + 1);
  }
  dims[0] = static_cast<int64_t>(table.cells.size() / table.columns);
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(var->dtype(), dims));
  switch (var->dtype()) {
    case DType::kFloat32:
      MILLRACE_RETURN_IF_ERROR(fill_data_set<float>(table, range, tensor));
      break;
    case DType::kFloat64:
      MILLRACE_RETURN_IF_ERROR(fill_data_set<double>(table, range, tensor));
      break;
    case DType::kInt32:
      MILLRACE_RETURN_IF_ERROR(fill_data_set<int32_t>(table, range, tensor));
      break;
    case DType::kInt64:
      MILLRACE_RETURN_IF_ERROR(fill_data_set<int64_t>(table, range, tensor));
      break;
    default:
      return Unimplemented("var '{}': csv columns of {}", range.var, dtype_name(var->dtype()));
  }
  return tensor;
}

}  // namespace

StatusOr<DataSet> DataSet::read(const std::string& path, const std::string& columns,
                                const Program& program) {
  DataSet data;
  if (llvm::StringRef(path).endswith(".npz")) {
    if (!columns.empty())
      return Status(StatusCode::kUsage,
                    "options.columns: expected a csv file, found an npz archive");
    using Tensors = std::map<std::string, Tensor>;
    MILLRACE_ASSIGN_OR_RETURN(Tensors arrays, io::read_npz(path));
    for (auto& [name, tensor] : arrays) {
      if (Status status = data.add(name, std::move(tensor)); !status.ok())
        return std::move(status).in_file(path);
    }
  } else {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<ColumnRange> ranges, parse_columns(columns));
    MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxDataBytes));
    if (Status status = io::refuse_parquet(text); !status.ok())
      return std::move(status).in_file(path);
    const StatusOr<CsvTable> table = parse_csv(text);
    if (!table.ok()) return Status(table.status()).in_file(path);
    for (const ColumnRange& range : ranges) {
      StatusOr<Tensor> tensor = column_tensor(*table, range, program);
      Status status = tensor.ok() ? data.add(range.var, *std::move(tensor)) : tensor.status();
      if (!status.ok()) return std::move(status).in_file(path);
    }
  }
  if (data.rows_ < 1) return InvalidData("found no examples").in_file(path);
  return data;
}

Status DataSet::add(const std::string& name, Tensor tensor) {
  if (tensor.rank() == 0) return InvalidData("array '{}': expected rows, found a scalar", name);
  if (rows_ >= 0 && tensor.dim(0) != rows_)
    return InvalidData("array '{}': expected {} rows, found {}", name, rows_, tensor.dim(0));
  rows_ = tensor.dim(0);
  columns_[name] = std::move(tensor);
  return Ok();
}

StatusOr<executor::NamedValues> DataSet::batch(llvm::ArrayRef<int64_t> rows) const {
  executor::NamedValues values;
  for (const auto& [name, column] : columns_) {
    auto& tensor = values[name].as<Tensor>();
    Dims dims(column.dims().begin(), column.dims().end());
    dims[0] = static_cast<int64_t>(rows.size());
    MILLRACE_RETURN_IF_ERROR(tensor.resize(column.dtype(), dims));
    const auto width = static_cast<size_t>(column.bytes() / rows_);
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(tensor.raw() + i * width, column.raw() + static_cast<size_t>(rows[i]) * width,
                  width);
  }
  return values;
}

}  // namespace millrace::jobs
