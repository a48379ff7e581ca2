#include <filesystem>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "executor/collective/group_gather.h"
#include "framework/base/errors.h"
#include "io/checkpoint/own_values.h"
#include "io/checkpoint/save.h"
#include "io/checkpoint/spread_checkpoint.h"
#include "tests/executor/collective/group_checks.h"

namespace millrace::executor {
namespace {

const Dims kDims = {40, 300};

// The messages from rank a to rank b: some are empty, others are longer than a mailbox.
std::string message_between(int32_t a, int32_t b, int32_t round) {
  if ((a + b + round) % 4 == 3) return {};
  const size_t length = round == 2 ? 300'000 : 1000;
  return std::string(static_cast<size_t>(a + 1) * length + static_cast<size_t>(b * 37),
                     static_cast<char>('a' + a * 5 + b));
}

Status check_texts(io::Gather& gather) {
  const int32_t rank = gather.rank();
  const int32_t size = gather.world_size();
  for (int32_t round = 0; round < 3; ++round) {
    MILLRACE_ASSIGN_OR_RETURN(const auto all, gather.all_gather(message_between(rank, 0, round)));
    std::vector<std::string> to;
    for (int32_t r = 0; r < size; ++r) to.push_back(message_between(rank, r, round));
    MILLRACE_ASSIGN_OR_RETURN(const auto from, gather.all_to_all(std::move(to)));
    for (int32_t r = 0; r < size; ++r) {
      if (all[static_cast<size_t>(r)] != message_between(r, 0, round) ||
          from[static_cast<size_t>(r)] != message_between(r, rank, round))
        return Internal("round {}: the text of rank {} has come otherwise", round, r);
    }
  }
  return Ok();
}

// Consecutive numbers: a part of a whole tensor.
StatusOr<Value> numbered_part(const io::Box& box) {
  Value value;
  Tensor& tensor = value.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kFloat32, box.shape));
  const auto values = tensor.values<float>();
  for (int64_t i = 0; i < box.numel(); ++i) {
    const int64_t row = box.offset[0] + i / box.shape[1];
    const int64_t column = box.offset[1] + i % box.shape[1];
    values[static_cast<size_t>(i)] = static_cast<float>(row * kDims[1] + column);
  }
  return value;
}

// Each rank saves rows on a separate disk, with a value that differs between ranks, and reads
// columns.
Status check_checkpoint(io::Gather& gather, const std::string& own_disk) {
  const int32_t rank = gather.rank();
  const int32_t size = gather.world_size();
  const io::Box rows = io::even_part(kDims, 0, rank, size);
  MILLRACE_ASSIGN_OR_RETURN(const Value part, numbered_part(rows));
  MILLRACE_ASSIGN_OR_RETURN(const Value mean, numbered_part({{rank, 0}, {1, 3}}));
  MILLRACE_ASSIGN_OR_RETURN(const Value equal, numbered_part({{7, 0}, {1, 5}}));
  io::LocalState state;
  state.add_part("w", part, kDims, rows.offset);
  state.add("mean", mean);
  state.add("equal", equal);
  MILLRACE_ASSIGN_OR_RETURN(const io::LocalState named, io::with_own_names(state, gather));
  MILLRACE_RETURN_IF_ERROR(
      io::save_state_dict(named, own_disk, gather, {.sync = false, .block_bytes = 5000}));
  MILLRACE_ASSIGN_OR_RETURN(io::SpreadCheckpoint checkpoint,
                            io::SpreadCheckpoint::open(own_disk, gather));
  if (checkpoint.manifest().has(io::name_of_rank("equal", rank)))
    return Internal("what is equal on all ranks is there for each");
  const io::Box columns = io::even_part(kDims, 1, rank, size);
  MILLRACE_ASSIGN_OR_RETURN(const Value expected, numbered_part(columns));
  Value loaded;
  Value loaded_mean;
  std::vector<io::LoadTarget> targets(2);
  targets[0].name = "w";
  targets[0].value = &loaded;
  targets[0].box = columns;
  targets[1].name = io::stored_name(checkpoint.manifest(), "mean", rank);
  targets[1].value = &loaded_mean;
  MILLRACE_RETURN_IF_ERROR(checkpoint.load_state_dict(targets));
  const auto same = [](const Value& a, const Value& b) {
    const auto of_a = a.get_if<Tensor>()->values<float>();
    const auto of_b = b.get_if<Tensor>()->values<float>();
    return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
  };
  if (!same(loaded, expected) || !same(loaded_mean, mean))
    return Internal("rank {} has loaded other values", rank);
  return Ok();
}

// The group is used while a thread exchanges texts through another group.
Status check_side_by_side(CollectiveGroup& group) {
  MILLRACE_ASSIGN_OR_RETURN(const auto own, group_of_all(group));
  const auto gather = make_group_gather(*own);
  if (!allows_calls_side_by_side(group)) return check_texts(*gather);
  Status in_thread;
  Status here;
  {
    const std::jthread thread([&] { in_thread = check_texts(*gather); });
    for (int i = 0; i < 200 && here.ok(); ++i) {
      std::vector<float> data(5000, 1.0F);
      here = group.all_reduce(DType::kFloat32, reinterpret_cast<std::byte*>(data.data()), 5000);
      if (here.ok() && data[4999] != static_cast<float>(group.size()))
        here = Internal("sum {} at call {}", data[4999], i);
    }
  }
  return here.ok() ? in_thread : here;
}

}  // namespace

std::string check_gather(CollectiveGroup& group) {
  const auto gather = make_group_gather(group);
  const auto run = [&]() -> Status {
    MILLRACE_RETURN_IF_ERROR(check_texts(*gather));
    MILLRACE_RETURN_IF_ERROR(check_side_by_side(group));
    const std::filesystem::path disk = std::filesystem::temp_directory_path() /
                                       fmt::format("millrace_disk_{}_{}", ::getpid(), group.rank());
    Status status = check_checkpoint(*gather, disk.string());
    std::error_code error;
    std::filesystem::remove_all(disk, error);
    return status;
  };
  const Status status = run();
  return status.ok() ? std::string() : status.to_string();
}

}  // namespace millrace::executor
