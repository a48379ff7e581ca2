#include "jobs/data/step_dump.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;

std::string dump_error(int code) {
  return std::error_code(code, std::generic_category()).message();
}

template <typename T>
void append_all(const Tensor& tensor, int64_t begin, int64_t end, std::string& text) {
  const auto values = tensor.values<T>();
  for (int64_t i = begin; i < end; ++i)
    fmt::format_to(std::back_inserter(text), ":{}", values[static_cast<size_t>(i)]);
}

// Appends ":value" for a range of elements. False for elements that are not numbers.
bool append_elements(const Tensor& tensor, int64_t begin, int64_t end, std::string& text) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      append_all<float>(tensor, begin, end, text);
      return true;
    case DType::kFloat64:
      append_all<double>(tensor, begin, end, text);
      return true;
    case DType::kInt64:
      append_all<int64_t>(tensor, begin, end, text);
      return true;
    case DType::kInt32:
      append_all<int32_t>(tensor, begin, end, text);
      return true;
    case DType::kBool:
      for (int64_t i = begin; i < end; ++i)
        text += tensor.values<bool>()[static_cast<size_t>(i)] ? ":1" : ":0";
      return true;
    default:
      return false;
  }
}

StatusOr<const Tensor*> dumped_tensor(const NamedValues& values, const std::string& name) {
  const auto found = values.find(name);
  const Tensor* const tensor = found == values.end() ? nullptr : found->second.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized())
    return InvalidData("dump of '{}': expected a tensor that the step writes", name);
  return tensor;
}

// The first row of each example and the end of the last: of sequences as their LoD says.
StatusOr<std::vector<int64_t>> rows_of_examples(const std::string& name, const Tensor& tensor,
                                                int64_t examples) {
  std::vector<int64_t> begins;
  const std::vector<LodLevel>& levels = tensor.lod().levels();
  const int64_t rows = tensor.rank() == 0 ? 0 : tensor.dim(0);
  if (!levels.empty()) {
    if (Status fits = tensor.lod().check(rows); !fits.ok())
      return InvalidData("dump of field '{}': {}", name, fits.message());
  }
  const int64_t found = levels.empty() ? rows : static_cast<int64_t>(levels.front().size()) - 1;
  if (found != examples)
    return InvalidData("dump of field '{}': expected a row for each of {} examples, found {}", name,
                       examples, found);
  for (int64_t i = 0; i <= examples; ++i) {
    int64_t at = i;
    for (const LodLevel& level : levels) at = level[static_cast<size_t>(at)];
    begins.push_back(at);
  }
  return begins;
}

Status not_numbers(const std::string& name, const Tensor& tensor) {
  return InvalidData("dump of '{}': expected numbers, found {}", name, dtype_name(tensor.dtype()));
}

}  // namespace

StatusOr<std::unique_ptr<StepDump>> StepDump::open(DumpOptions options) {
  if (options.folder.empty())
    return Status(StatusCode::kUsage, "options.dump_folder: expected the folder for dumps");
  if (options.interval < 1)
    return Status(StatusCode::kUsage, "options.dump_interval: expected a number above 0");
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error)
    return IoError("cannot create the folder: {}", error.message()).in_file(options.folder);
  std::unique_ptr<StepDump> dump(new StepDump(std::move(options)));
  const DumpOptions& own = dump->options_;
  dump->path_ = fmt::format("{}/part-{:03}", own.folder, own.trainer);
  const int how = own.replace == Replace::kYes ? O_TRUNC : O_EXCL;
  dump->fd_ = ::open(dump->path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
  if (dump->fd_ >= 0) return dump;
  if (errno == EEXIST)
    return Status(StatusCode::kUsage, "the file exists")
        .in_file(dump->path_)
        .with_hint("options.replace replaces it");
  return IoError("cannot create the file: {}", dump_error(errno)).in_file(dump->path_);
}

StepDump::~StepDump() {
  if (fd_ >= 0) ::close(fd_);
}

std::vector<std::string> StepDump::with(const std::vector<std::string>& fetches) const {
  std::vector<std::string> all = fetches;
  for (const auto* const list : {&options_.fields, &options_.params}) {
    for (const std::string& name : *list)
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  }
  return all;
}

Status StepDump::append_fields(int64_t step, int64_t examples, const NamedValues& values,
                               std::string& text) const {
  if (options_.fields.empty()) return Ok();
  std::vector<std::string> lines;
  for (int64_t i = 0; i < examples; ++i) lines.push_back(fmt::format("{}:{}", step, i));
  for (const std::string& name : options_.fields) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor, dumped_tensor(values, name));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> begins,
                              rows_of_examples(name, *tensor, examples));
    const int64_t width = tensor->dim(0) == 0 ? 0 : tensor->numel() / tensor->dim(0);
    for (size_t i = 0; i < lines.size(); ++i) {
      const int64_t begin = begins[i] * width;
      const int64_t end = begins[i + 1] * width;
      fmt::format_to(std::back_inserter(lines[i]), "\t{}:{}", name, end - begin);
      if (!append_elements(*tensor, begin, end, lines[i])) return not_numbers(name, *tensor);
    }
  }
  for (const std::string& line : lines) (text += line) += '\n';
  return Ok();
}

Status StepDump::append_params(int64_t step, const NamedValues& values, std::string& text) const {
  for (const std::string& name : options_.params) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor, dumped_tensor(values, name));
    fmt::format_to(std::back_inserter(text), "({},{})", step, name);
    if (!append_elements(*tensor, 0, tensor->numel(), text)) return not_numbers(name, *tensor);
    text += '\n';
  }
  return Ok();
}

Status StepDump::write(int64_t step, int64_t examples, const std::vector<std::string>& fetches,
                       NamedValues& values) {
  std::string text;
  if (step % options_.interval == 0) {
    MILLRACE_RETURN_IF_ERROR(append_fields(step, examples, values, text));
    MILLRACE_RETURN_IF_ERROR(append_params(step, values, text));
  }
  for (const auto* const list : {&options_.fields, &options_.params}) {
    for (const std::string& name : *list)
      if (std::find(fetches.begin(), fetches.end(), name) == fetches.end()) values.erase(name);
  }
  const std::lock_guard lock(writing_);
  if (text.empty()) return Ok();
  begins_.emplace_back(step, bytes_);
  bytes_ += static_cast<int64_t>(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t done = ::write(fd_, rest.data(), rest.size());
    if (done < 0 && errno != EINTR)
      return IoError("cannot write: {}", dump_error(errno)).in_file(path_);
    rest.remove_prefix(static_cast<size_t>(std::max<ssize_t>(done, 0)));
  }
  return Ok();
}

Status StepDump::go_back(int64_t step) {
  const std::lock_guard lock(writing_);
  const auto first =
      std::ranges::find_if(begins_, [&](const auto& at) { return at.first >= step; });
  if (first == begins_.end()) return Ok();
  if (::ftruncate(fd_, first->second) != 0 || ::lseek(fd_, first->second, SEEK_SET) < 0)
    return IoError("cannot remove the lines of step {}: {}", step, dump_error(errno))
        .in_file(path_);
  bytes_ = first->second;
  begins_.erase(first, begins_.end());
  return Ok();
}

}  // namespace millrace::jobs
