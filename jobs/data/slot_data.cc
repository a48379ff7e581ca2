#include "jobs/data/slot_data.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <glob.h>
#include <llvm/ADT/STLExtras.h>
#include <sys/stat.h>

#include "fleet/roles/file_share.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "jobs/data/exchange_rows.h"
#include "jobs/data/shuffle.h"

namespace millrace::jobs {
namespace {

constexpr int64_t kMaxSlotsBytes = int64_t{64} << 20;
constexpr int64_t kDefaultBatchSize = 64;
constexpr int64_t kMostCountedEpochs = 1'000'000;

// Files of a pattern in the order of their names; a name without wildcards matches itself.
Status add_files(const std::string& pattern, std::vector<std::string>& files) {
  if (pattern == "-") {
    files.push_back(pattern);
    return Ok();
  }
  glob_t found{};
  const int result = glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE | GLOB_ERR, nullptr, &found);
  for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  if (result == 0) return Ok();
  if (result == GLOB_NOMATCH) return NotFound("options.files: no file matches '{}'", pattern);
  return IoError("options.files: cannot search all folders for '{}'", pattern);
}

// A file that is listed twice, also by another path or a link, would be trained on twice.
Status check_listed_once(const std::vector<std::string>& files) {
  std::map<std::pair<dev_t, ino_t>, std::string> seen;
  std::set<std::string> names;
  for (const std::string& file : files) {
    if (!names.insert(file).second)
      return {StatusCode::kUsage, fmt::format("options.files: '{}' is listed twice", file)};
    struct stat facts {};
    if (stat(file.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;  // opening says why
    const auto [other, is_new] = seen.emplace(std::pair(facts.st_dev, facts.st_ino), file);
    if (!is_new)
      return {StatusCode::kUsage,
              fmt::format("options.files: '{}' and '{}' are the same file", other->second, file)};
  }
  return Ok();
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

}  // namespace

StatusOr<io::SlotsFile> read_slots(const std::string& path, const Program& program) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxSlotsBytes));
  StatusOr<io::SlotsFile> slots = io::parse_slots(text, program);
  if (!slots.ok()) return std::move(slots).status().in_file(path);
  return slots;
}

StatusOr<std::unique_ptr<SlotData>> SlotData::open(const FeedOptions& options,
                                                   const Program& program) {
  if (options.slots.empty())
    return Status(StatusCode::kUsage,
                  "options.files: expected options.slots with the fields of a line");
  std::unique_ptr<SlotData> data(new SlotData());
  MILLRACE_RETURN_IF_ERROR(data->find_files(options));
  MILLRACE_ASSIGN_OR_RETURN(io::SlotsFile slots, read_slots(options.slots, program));
  MILLRACE_RETURN_IF_ERROR(data->set_up(options, std::move(slots)));
  if (data->in_memory_) {
    MILLRACE_RETURN_IF_ERROR(data->load());
    MILLRACE_RETURN_IF_ERROR(data->begin_epoch());
  }
  return data;
}

StatusOr<std::unique_ptr<SlotData>> SlotData::find(const FeedOptions& options,
                                                   io::SlotsFile slots) {
  std::unique_ptr<SlotData> data(new SlotData());
  MILLRACE_RETURN_IF_ERROR(data->find_files(options));
  MILLRACE_RETURN_IF_ERROR(data->set_up(options, std::move(slots)));
  return data;
}

Status SlotData::set_up(const FeedOptions& options, io::SlotsFile slots) {
  if (!slots.pipe_command.empty() && !options.allow_pipe_command)
    return Status(StatusCode::kUsage,
                  fmt::format("the description of the slots would run the pipe_command '{}'",
                              slots.pipe_command))
        .with_hint("options.allow_pipe_command lets it; read the command first");
  if (slots.format.arrow == options.streams.empty())
    return Status(StatusCode::kUsage,
                  slots.format.arrow
                      ? "options.files: a description with \"format\": \"arrow\" is for streams"
                      : "options.arrow: expected a description with \"format\": \"arrow\"");
  source_.pipe_command = std::move(slots.pipe_command);
  source_.format = slots.format;
  source_.slots = std::move(slots.slots);
  source_.batch_size = options.batch_size > 0 ? options.batch_size
                       : slots.batch_size > 0 ? slots.batch_size
                                              : kDefaultBatchSize;
  source_.readers =
      options.reader_threads > 0 ? options.reader_threads : std::max(slots.readers, 1);
  epochs_ = options.epochs;
  shuffle_ = options.shuffle;
  seed_ = options.seed;
  drop_last_ = options.drop_last;
  return divide_files(options);
}

Status SlotData::find_files(const FeedOptions& options) {
  in_memory_ = options.in_memory;
  std::vector<std::string>& files = source_.files;
  source_.streams = options.streams;
  if (!options.streams.empty()) files = options.files;
  for (const std::string& pattern : options.files)
    if (options.streams.empty()) MILLRACE_RETURN_IF_ERROR(add_files(pattern, files));
  if (options.streams.empty()) MILLRACE_RETURN_IF_ERROR(check_listed_once(files));
  source_name_ = files.front();
  from_stdin_ =
      options.streams.empty() && std::find(files.begin(), files.end(), "-") != files.end();
  if (from_stdin_ && !in_memory_ && options.epochs > 1)
    return {StatusCode::kUsage,
            "options.files: standard input can be read only once; several epochs need "
            "options.in_memory"};
  if (from_stdin_ && options.divide != Divide::kNone)
    return {StatusCode::kUsage, "options.divide: each trainer has its own standard input"};
  return Ok();
}

// Counts rare values in the files of all trainers, then keeps those of this one.
Status SlotData::divide_files(const FeedOptions& options) {
  const auto counted = [](const io::Slot& slot) { return slot.cells.min_count > 0; };
  if (from_stdin_ && std::any_of(source_.slots.begin(), source_.slots.end(), counted))
    return {StatusCode::kUsage,
            "options.files: slots with a min_count need files, which are read twice"};
  std::vector<int64_t> rows;
  MILLRACE_ASSIGN_OR_RETURN(source_.counts, io::count_values(source_, &rows));
  if (!rows.empty()) MILLRACE_RETURN_IF_ERROR(check_rows(rows));
  if (options.trainer < 0 || options.trainer >= options.trainers)
    return {StatusCode::kUsage, fmt::format("options.trainer: expected less than {}, found {}",
                                            options.trainers, options.trainer)};
  if (options.reshuffle_epochs && options.divide != Divide::kExamples)
    return {StatusCode::kUsage, "options.reshuffle_epochs: expected options.divide examples"};
  divided_ = options.divide != Divide::kNone && options.trainers > 1;
  reshuffle_ = options.reshuffle_epochs && divided_;
  if (options.divide == Divide::kExamples) source_.share = {options.trainer, options.trainers};
  if (options.divide == Divide::kFiles)
    source_.files = fleet::file_share(source_.files, options.trainer, options.trainers);
  return Ok();
}

Status SlotData::read_all() {
  io::MultiSlotReader reader(source_);
  io::SlotRows batch;
  while (true) {
    MILLRACE_RETURN_IF_ERROR(reader.next(batch));
    if (batch.rows == 0) break;
    io::append_rows(batch, rows_);
  }
  read_ = rows_.rows;
  MILLRACE_RETURN_IF_ERROR(check_rows(reader.lines()));
  if (!reshuffle_) return check_epoch();
  // otherwise this trainer might have another number of steps than it has announced
  for (size_t f = 0; f < lines_.size(); ++f)
    if (lines_[f] != reader.lines()[f])
      return InvalidData("expected {} lines as in the first epoch, found {}", lines_[f],
                         reader.lines()[f])
          .in_file(source_.files[f]);
  lines_ = reader.lines();
  return share_epoch_ > 1 ? Ok() : check_epoch();
}

// A stream that can be read only once is empty in the second pass.
Status SlotData::check_rows(const std::vector<int64_t>& rows) {
  for (size_t f = 0; f < rows.size() && source_.format.arrow; ++f) {
    const auto [found, is_new] = rows_of_.emplace(source_.files[f], rows[f]);
    if (!is_new && found->second != rows[f])
      return InvalidData("expected {} rows as in the first pass, found {}", found->second, rows[f])
          .in_file(source_.files[f])
          .with_hint("what can be read only once needs options.in_memory and no min_count");
  }
  return Ok();
}

// Memory: replaces the examples by those of another epoch.
Status SlotData::read_share(int64_t epoch) {
  rows_ = {};
  at_ = 0;
  source_.share.epoch = share_epoch_ = epoch;
  if (Status status = read_all(); !status.ok()) {
    release();
    return status;
  }
  order_.resize(static_cast<size_t>(rows_.rows));
  std::iota(order_.begin(), order_.end(), 0);
  return Ok();
}

Status SlotData::load() {
  if (from_stdin_ && std::exchange(stdin_read_, true))
    return Unimplemented("standard input cannot be read again after its examples were dropped");
  release();
  MILLRACE_RETURN_IF_ERROR(read_share(reshuffle_ ? 1 : 0));
  loaded_ = true;
  return Ok();
}

void SlotData::release() {
  loaded_ = false;
  shuffles_ = 0;
  lines_.clear();
  rows_ = {};
  order_ = {};
  at_ = 0;
}

void SlotData::shuffle() {
  shuffle_rows(order_, seed_, ++shuffles_);
}

Status SlotData::shuffle_all() {
  if (reshuffle_) MILLRACE_RETURN_IF_ERROR(read_share(shuffles_ + 1));
  shuffle();
  return Ok();
}

Status SlotData::exchange(executor::CollectiveGroup& ranks) {
  shuffle();
  MILLRACE_RETURN_IF_ERROR(exchange_rows({source_.slots, seed_, shuffles_}, order_, ranks, rows_));
  order_.resize(static_cast<size_t>(rows_.rows));
  std::iota(order_.begin(), order_.end(), 0);
  shuffle_rows(order_, seed_, shuffles_);
  return Ok();
}

// The share of one trainer may be empty.
Status SlotData::check_epoch() const {
  if (read_ == 0 && !divided_) return InvalidData("found no examples").in_file(source_name_);
  if (read_ > 0 && read_ == dropped())
    return InvalidData("found only {} examples, no batch of {} is full", read_, source_.batch_size)
        .in_file(source_name_);
  return Ok();
}

int64_t SlotData::dropped() const {
  if (!in_memory_ || !drop_last_) return dropped_;
  return dropped_ + rows_.rows % source_.batch_size;
}

std::string SlotData::remark() const {
  if (read_ > 0 || !divided_) return {};
  return fmt::format("no example of {} files is for this trainer", source_.files.size());
}

// Batches of an epoch with that many examples.
int64_t SlotData::steps_of(int64_t rows) const {
  const int64_t rest = drop_last_ ? 0 : source_.batch_size - 1;
  return (rows + rest) / source_.batch_size;
}

int64_t SlotData::steps() const {
  if (!in_memory_) return -1;
  if (!reshuffle_) return steps_of(rows_.rows) * epochs_;
  if (epochs_ > kMostCountedEpochs) return -1;
  int64_t sum = 0;
  io::LineShare share = source_.share;
  for (share.epoch = 1; share.epoch <= epochs_; ++share.epoch) {
    int64_t rows = 0;
    for (size_t f = 0; f < lines_.size(); ++f) rows += share.count(f, lines_[f]);
    sum += steps_of(rows);
  }
  return sum;
}

Status SlotData::restart() {
  if (in_memory_ && !loaded_)
    return InvalidArgument("the examples are not in memory, load them first");
  if (!in_memory_ && stdin_read_)
    return Unimplemented("standard input cannot be read again; options.in_memory keeps it");
  epoch_ = 1;
  dropped_ = 0;
  at_ = 0;
  waited_s_ = waited_s();
  reader_ = nullptr;
  return Ok();
}

Status SlotData::rewind() {
  MILLRACE_RETURN_IF_ERROR(restart());
  if (!in_memory_) return Ok();
  std::iota(order_.begin(), order_.end(), 0);
  return begin_epoch();
}

void SlotData::start_reader() {
  waited_s_ = waited_s();
  reader_ = nullptr;
  read_ = 0;
  stdin_read_ = from_stdin_;
  if (reshuffle_) source_.share.epoch = epoch_;
  reader_ = std::make_unique<io::MultiSlotReader>(source_);
}

double SlotData::waited_s() const {
  return waited_s_ + (reader_ == nullptr ? 0 : reader_->waited_s());
}

// Starts from the order of the previous epoch, or with the share of this one.
Status SlotData::begin_epoch() {
  at_ = 0;
  if (reshuffle_ && share_epoch_ != epoch_) MILLRACE_RETURN_IF_ERROR(read_share(epoch_));
  if (shuffle_) shuffle_rows(order_, seed_, epoch_);
  return Ok();
}

bool SlotData::has(const std::string& name) const {
  return llvm::any_of(source_.slots,
                      [&](const io::Slot& slot) { return slot.is_used && slot.name == name; });
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
  const auto full = static_cast<size_t>(source_.batch_size);
  size_t left = order_.size() - at_;
  while (left == 0 || (drop_last_ && left < full)) {
    if (epoch_ == epochs_ || (order_.empty() && !reshuffle_)) return int64_t{0};
    ++epoch_;
    dropped_ += static_cast<int64_t>(left);
    MILLRACE_RETURN_IF_ERROR(begin_epoch());
    left = order_.size();
  }
  const size_t count = std::min(full, left);
  MILLRACE_RETURN_IF_ERROR(fill(rows_, llvm::ArrayRef(order_).slice(at_, count), feeds));
  at_ += count;
  return static_cast<int64_t>(count);
}

// Reads the next batch that is not left out into rows_; none at the end of the last epoch.
Status SlotData::read_batch() {
  if (reader_ == nullptr) start_reader();
  while (true) {
    MILLRACE_RETURN_IF_ERROR(reader_->next(rows_));
    read_ += rows_.rows;
    if (rows_.rows >= source_.batch_size || (rows_.rows > 0 && !drop_last_)) return Ok();
    dropped_ += rows_.rows;
    if (rows_.rows > 0) continue;
    MILLRACE_RETURN_IF_ERROR(check_rows(reader_->lines()));
    if (epoch_ == 1) MILLRACE_RETURN_IF_ERROR(check_epoch());
    if (epoch_ == epochs_) return Ok();
    ++epoch_;
    start_reader();
  }
}

StatusOr<int64_t> SlotData::next_of_queue(executor::NamedValues& feeds) {
  MILLRACE_RETURN_IF_ERROR(read_batch());
  if (rows_.rows == 0) return int64_t{0};
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
