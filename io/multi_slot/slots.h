#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::io {

/// How the cells of delimited text and of Arrow columns become ids.
enum class CellHash : uint8_t {
  kNone,         ///< decimal number, the id itself unless there are buckets
  kHexadecimal,  ///< the same for a hexadecimal number of at most 16 digits
  kXxh64,        ///< XXH64 with the seed
  kFnv1a,        ///< FNV-1a of 64 bits; the seed is combined with its start value by xor
  kMurmur3,      ///< MurmurHash3 of 32 bits (x86) with the seed
  kCrc32,        ///< CRC-32 as in gzip, continued from the seed
};

/// Which cells of a line of delimited text, or columns of an Arrow stream, a slot has, and how they
/// become its values.
struct CellRule {
  size_t first = 0;                     ///< first column, from 0
  size_t count = 1;                     ///< number of columns
  std::vector<std::string> names = {};  ///< Arrow: its columns, in place of the numbers above
  std::optional<double> missing = {};   ///< float slots: value of an empty cell; without: an error
  std::optional<int64_t> missing_id = {};  ///< the same for ids; it is not hashed
  CellHash hash = CellHash::kNone;
  std::string prefix = {};  ///< hashed before the text of the cell
  uint64_t seed = 0;        ///< of the hash
  uint64_t buckets = 0;     ///< ids are first_id + value mod buckets; 0: the value itself
  int64_t first_id = 0;     ///< id of the first bucket
  int64_t min_count = 0;    ///< values that appear less often in all files become rare_id; 0: none
  int64_t rare_id = 0;
};

/// One slot of an instance.
struct Slot {
  std::string name;       ///< name of the var that it feeds
  bool is_float = false;  ///< values are float32; else int64 (the original's "uint64")
  bool is_dense = false;  ///< the same number of values in every instance; else one LoD level
  bool is_used = true;    ///< false: its values are skipped
  /// Dense slots: dims of an instance, all above 0; empty means a single number.
  std::vector<int64_t> dims = {};
  CellRule cells = {};  ///< of delimited text and Arrow streams

  /// Number of values per instance of a dense slot.
  [[nodiscard]] size_t width() const;
};

/// The form of the lines of a file, or of what has rows in place of lines.
struct TextFormat {
  bool arrow = false;      ///< rows of an Arrow stream; the members below have no meaning
  bool delimited = false;  ///< cells between separators; otherwise MultiSlot text
  char separator = '\t';
  bool header = false;  ///< the first line of each file is skipped
  size_t columns = 0;   ///< cells of a line
};

/// Content of a slots file.
struct SlotsFile {
  int64_t batch_size = 0;  ///< 0: not stated
  int readers = 0;         ///< number of reader threads ("thread_num"); 0: not stated
  /// Command through which each file is sent before its lines are read (pipe_through()); empty:
  /// none, also for "cat". Callers run it only if their user allows it.
  std::string pipe_command;
  TextFormat format;
  std::vector<Slot> slots;
};

/// Parses the description of MultiSlot text: {"slots": [...], "batch_size": 64}, or the original's
/// DataFeedDesc with its field names ({"multi_slot_desc": {"slots": [...]}, "batch_size": 64}).
/// With "format": "delimited" it describes delimited text, with "arrow" the columns of an Arrow
/// stream (docs/data_files.md).
///
/// A slot is a name, or {"name", "type": "float" or "uint64", "is_dense", "is_used", "shape"}.
/// Missing fields are taken from the var of that name: float32 is float and int64 is uint64; LoD
/// level 0 means dense with the dims of the var. A shape may begin with -1 for the instances of a
/// batch.
/// Errors: kInvalidData with the slot, also for unknown fields; kUnimplemented for settings of the
/// original that would change the examples. Source: spec/fleet.md section 14.
StatusOr<SlotsFile> parse_slots(std::string_view json, const Program& program);

}  // namespace millrace::io
