// Measures how fast files of examples are read: lines of 26 ids and 13 numbers, as in a click log,
// as MultiSlot text or with tabs and hashed ids.
//
//   multi_slot_bench --folder DIR [--format delimited] [--mib 256] [--readers 1] [--runs 5]
//   [--check]
//
// Writes a file into the folder, reads it through MultiSlotReader in batches of 512, and prints one
// line of JSON: MB/s of text (median and best). Goal G9: 300 MB/s per thread.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "framework/base/file.h"
#include "io/multi_slot/reader.h"

namespace {

using namespace millrace;

constexpr size_t kIdSlots = 26;
constexpr size_t kNumbers = 13;

// Columns are those of delimited text, in the order of the slots.
std::vector<io::Slot> slots() {
  std::vector<io::Slot> all;
  for (size_t i = 0; i < kIdSlots; ++i)
    all.push_back({.name = fmt::format("C{}", i),
                   .cells = {.first = i, .hash = io::CellHash::kXxh64, .buckets = 1000000}});
  all.push_back({.name = "dense",
                 .is_float = true,
                 .is_dense = true,
                 .dims = {kNumbers},
                 .cells = {.first = kIdSlots, .count = kNumbers, .missing = 0.0}});
  all.push_back(
      {.name = "click", .is_dense = true, .dims = {1}, .cells = {.first = kIdSlots + kNumbers}});
  return all;
}

std::string text_of(size_t bytes, bool delimited, int64_t& lines) {
  std::mt19937_64 random(1);
  std::string text;
  for (lines = 0; text.size() < bytes; ++lines) {
    const char end = delimited ? '\t' : ' ';
    const char* const one = delimited ? "" : "1 ";
    for (size_t i = 0; i < kIdSlots; ++i)
      text += fmt::format("{}{}{}", one, random() % 1000000000, end);
    if (!delimited) text += fmt::format("{} ", kNumbers);
    for (size_t i = 0; i < kNumbers; ++i)
      text += fmt::format("{:.6f}{}", static_cast<double>(random() % 2000000) * 1e-6 - 1, end);
    text += fmt::format("{}{}\n", one, random() % 2);
  }
  return text;
}

// Seconds to read everything.
StatusOr<double> read_once(const io::MultiSlotSource& source, int64_t lines) {
  const auto begin = std::chrono::steady_clock::now();
  io::MultiSlotReader reader(source);
  io::SlotRows rows;
  int64_t seen = 0;
  while (true) {
    MILLRACE_RETURN_IF_ERROR(reader.next(rows));
    if (rows.rows == 0) break;
    seen += rows.rows;
  }
  if (seen != lines)
    return Status(StatusCode::kInternal, fmt::format("read {} of {} lines", seen, lines));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("speed of reading files of examples");
  std::string folder;
  size_t mib = 256;
  std::string format = "multi_slot";
  int readers = 1;
  int runs = 5;
  bool check = false;
  app.add_option("--folder", folder, "folder for the file")->required();
  app.add_option("--mib", mib, "size of the text")->check(CLI::Range(1, 1 << 20));
  app.add_option("--format", format, "form of the text")
      ->check(CLI::IsMember({"multi_slot", "delimited"}));
  app.add_option("--readers", readers, "number of files and threads")->check(CLI::Range(1, 64));
  app.add_option("--runs", runs, "number of runs")->check(CLI::Range(1, 100));
  app.add_flag("--check", check, "one small run that only checks that everything works");
  CLI11_PARSE(app, argc, argv);
  if (check) {
    mib = 1;
    runs = 1;
  }
  io::MultiSlotSource source;
  source.slots = slots();
  source.format = {.delimited = format == "delimited", .columns = kIdSlots + kNumbers + 1};
  source.batch_size = 512;
  source.readers = readers;
  int64_t lines = 0;
  const std::string text =
      text_of((mib << 20U) / static_cast<size_t>(readers), source.format.delimited, lines);
  const std::string path = folder + "/multi_slot_bench.txt";
  if (const Status status = write_file_atomically(path, text, Replace::kYes, Flush::kNo);
      !status.ok()) {
    fmt::print(stderr, "{}\n", status.to_string());
    return 1;
  }
  source.files.assign(static_cast<size_t>(readers), path);
  std::vector<double> rates;
  for (int run = 0; run < runs; ++run) {
    const StatusOr<double> seconds = read_once(source, lines * readers);
    if (!seconds.ok()) {
      fmt::print(stderr, "{}\n", seconds.status().to_string());
      return 1;
    }
    rates.push_back(static_cast<double>(text.size()) * readers / *seconds * 1e-6);
  }
  std::filesystem::remove(path);
  std::sort(rates.begin(), rates.end());
  fmt::print(
      R"({{"name": "{}", "mib": {}, "readers": {}, "unit": "MB/s", "median": {:.0f}, "best": {:.0f}, "runs": {}}})"
      "\n",
      format, mib, readers, rates[rates.size() / 2], rates.back(), runs);
  return 0;
}
