#include "jobs/data/slot_data.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <glob.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "jobs/data/shuffle.h"

namespace millrace::jobs {
namespace {

constexpr int64_t kMaxSlotsBytes = int64_t{64} << 20;
constexpr int64_t kDefaultBatchSize = 64;

// Files of a pattern in the order of their names; a name without wildcards matches itself.
Status add_files(const std::string& pattern, std::vector<std::string>& files) {
  if (pattern == "-") {
    files.push_back(pattern);
    return Ok();
  }
  glob_t found{};
  const int result = glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found);
  for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  if (result == 0) return Ok();
  if (result == GLOB_NOMATCH) return NotFound("options.files: no file matches '{}'", pattern);
  return IoError("options.files: cannot search for '{}'", pattern);
}

size_t begin_of(const io::SlotColumn& column, int64_t row) {
  return row == 0 ? 0 : static_cast<size_t>(column.ends[static_cast<size_t>(row) - 1]);
}

// Concatenates the values of the given rows.
template <typename T>
void gather(const std::vector<T>& values, const io::SlotColumn& column,
            llvm::ArrayRef<int64_t> rows, T* to) {
  for (const int64_t row : rows) {
    const size_t begin = begin_of(column, row);
    const size_t count = static_cast<size_t>(column.ends[static_cast<size_t>(row)]) - begin;
    std::memcpy(to, values.data() + begin, count * sizeof(T));
    to += count;
  }
}

// Appends the rows of `from`; the memory of `from` can be reused afterwards.
void append(const io::SlotRows& from, io::SlotRows& to) {
  to.columns.resize(from.columns.size());
  for (size_t s = 0; s < from.columns.size(); ++s) {
    const io::SlotColumn& source = from.columns[s];
    io::SlotColumn& column = to.columns[s];
    const int64_t shift = column.ends.empty() ? 0 : column.ends.back();
    for (const int64_t end : source.ends) column.ends.push_back(end + shift);
    column.floats.insert(column.floats.end(), source.floats.begin(), source.floats.end());
    column.ids.insert(column.ids.end(), source.ids.begin(), source.ids.end());
  }
  to.rows += from.rows;
}

}  // namespace

StatusOr<std::unique_ptr<SlotData>> SlotData::open(const FeedOptions& options,
                                                   const Program& program) {
  if (options.slots.empty())
    return Status(StatusCode::kUsage,
                  "options.files: expected options.slots with the fields of a line");
  std::unique_ptr<SlotData> data(new SlotData());
  for (const std::string& pattern : options.files)
    MILLRACE_RETURN_IF_ERROR(add_files(pattern, data->source_.files));
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(options.slots, kMaxSlotsBytes));
  StatusOr<io::SlotsFile> slots = io::parse_slots(text, program);
  if (!slots.ok()) return std::move(slots).status().in_file(options.slots);
  data->source_.slots = std::move(slots->slots);
  data->source_.batch_size = options.batch_size > 0  ? options.batch_size
                             : slots->batch_size > 0 ? slots->batch_size
                                                     : kDefaultBatchSize;
  data->source_.readers = options.reader_threads;
  data->epochs_ = options.epochs;
  data->shuffle_ = options.shuffle;
  data->seed_ = options.seed;
  data->in_memory_ = options.in_memory;
  if (data->in_memory_) {
    MILLRACE_RETURN_IF_ERROR(data->load());
  }
  data->rewind();
  return data;
}

Status SlotData::load() {
  io::MultiSlotReader reader(source_);
  io::SlotRows batch;
  while (true) {
    MILLRACE_RETURN_IF_ERROR(reader.next(batch));
    if (batch.rows == 0) break;
    append(batch, rows_);
  }
  if (rows_.rows == 0) return InvalidData("found no examples").in_file(source_.files.front());
  order_.resize(static_cast<size_t>(rows_.rows));
  return Ok();
}

int64_t SlotData::steps() const {
  if (!in_memory_) return -1;
  return (rows_.rows + source_.batch_size - 1) / source_.batch_size * epochs_;
}

void SlotData::rewind() {
  epoch_ = 1;
  if (in_memory_) {
    std::iota(order_.begin(), order_.end(), 0);
    begin_epoch();
  } else {
    start_reader();
  }
}

void SlotData::start_reader() {
  waited_s_ = waited_s();
  reader_ = nullptr;
  reader_ = std::make_unique<io::MultiSlotReader>(source_);
}

double SlotData::waited_s() const {
  return waited_s_ + (reader_ == nullptr ? 0 : reader_->waited_s());
}

// Starts from the order of the previous epoch.
void SlotData::begin_epoch() {
  at_ = 0;
  if (shuffle_) shuffle_rows(order_, seed_, epoch_);
}

Status SlotData::fill(const io::SlotRows& from, llvm::ArrayRef<int64_t> rows,
                      executor::NamedValues& feeds) const {
  for (size_t s = 0; s < source_.slots.size(); ++s) {
    const io::Slot& slot = source_.slots[s];
    if (!slot.is_used) continue;
    const io::SlotColumn& column = from.columns[s];
    LodLevel offsets = {0};
    for (const int64_t row : rows)
      offsets.push_back(offsets.back() + column.ends[static_cast<size_t>(row)] -
                        static_cast<int64_t>(begin_of(column, row)));
    auto& tensor = feeds[slot.name].as<Tensor>();
    Dims dims = {slot.is_dense ? static_cast<int64_t>(rows.size()) : offsets.back()};
    if (slot.is_dense) dims.append(slot.dims.begin(), slot.dims.end());
    if (!slot.is_dense) dims.push_back(1);
    const DType dtype = slot.is_float ? DType::kFloat32 : DType::kInt64;
    MILLRACE_RETURN_IF_ERROR(tensor.resize(dtype, dims));
    if (slot.is_float) gather(column.floats, column, rows, tensor.data<float>());
    if (!slot.is_float) gather(column.ids, column, rows, tensor.data<int64_t>());
    if (!slot.is_dense) tensor.set_lod(Lod({std::move(offsets)}));
  }
  return Ok();
}

StatusOr<int64_t> SlotData::next_of_memory(executor::NamedValues& feeds) {
  if (at_ == order_.size()) {
    if (epoch_ == epochs_) return int64_t{0};
    ++epoch_;
    begin_epoch();
  }
  const size_t count = std::min(static_cast<size_t>(source_.batch_size), order_.size() - at_);
  MILLRACE_RETURN_IF_ERROR(fill(rows_, llvm::ArrayRef(order_).slice(at_, count), feeds));
  at_ += count;
  return static_cast<int64_t>(count);
}

StatusOr<int64_t> SlotData::next_of_queue(executor::NamedValues& feeds) {
  while (true) {
    MILLRACE_RETURN_IF_ERROR(reader_->next(rows_));
    if (rows_.rows > 0) break;
    if (epoch_ == epochs_) return int64_t{0};
    ++epoch_;
    start_reader();
  }
  if (order_.size() < static_cast<size_t>(rows_.rows)) {
    order_.resize(static_cast<size_t>(rows_.rows));
    std::iota(order_.begin(), order_.end(), 0);
  }
  MILLRACE_RETURN_IF_ERROR(
      fill(rows_, llvm::ArrayRef(order_).take_front(static_cast<size_t>(rows_.rows)), feeds));
  return rows_.rows;
}

StatusOr<int64_t> SlotData::next(executor::NamedValues& feeds) {
  return in_memory_ ? next_of_memory(feeds) : next_of_queue(feeds);
}

}  // namespace millrace::jobs
