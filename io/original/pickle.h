#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"

/// A closed reader of the small part of Python's pickle format (protocol 4) in which the original
/// stores its distributed checkpoints. It resolves no names, imports nothing and calls nothing: the
/// few names it knows are cases of an enum; any other name or opcode is an error.
/// Source: spec/checkpoint.md section 6, rule 10; goldens/checkpoint.
namespace millrace::io {

/// The names that may stand in such a file.
enum class PickleName {
  kMetadata,             ///< paddle.distributed.checkpoint.metadata.Metadata
  kLocalTensorMetadata,  ///< ....LocalTensorMetadata
  kLocalTensorIndex,     ///< ....LocalTensorIndex
  kReconstruct,          ///< numpy._core.multiarray._reconstruct
  kNdarray,              ///< numpy.ndarray
  kDtype,                ///< numpy.dtype
};

/// Index of a value in Pickle::values.
using PickleRef = int32_t;

struct PickleNone {};
/// Bytes that stay in the file.
struct PickleBytes {
  uint64_t begin = 0;
  uint64_t size = 0;
};
struct PickleTuple {
  std::vector<PickleRef> items;
};
struct PickleList {
  std::vector<PickleRef> items;
};
struct PickleDict {
  std::vector<std::pair<PickleRef, PickleRef>> items;  ///< in order; keys may repeat
};
/// What a name and its arguments have made; `state` is -1 until it was given.
struct PickleObject {
  PickleName name = PickleName::kMetadata;
  PickleRef arguments = -1;
  PickleRef state = -1;
};

using PickleValue = std::variant<PickleNone, bool, int64_t, std::string, PickleBytes, PickleTuple,
                                 PickleList, PickleDict, PickleName, PickleObject>;

/// What a file holds. Values may be shared, and a hostile file may make them contain themselves, so
/// users follow a fixed form only.
struct Pickle {
  std::vector<PickleValue> values;
  PickleRef root = 0;

  /// The value as T; null if the reference is -1 or the value is something else.
  template <typename T>
  [[nodiscard]] const T* get(PickleRef ref) const {
    return ref < 0 ? nullptr : std::get_if<T>(&values[static_cast<size_t>(ref)]);
  }
  /// The value of a text key; -1 if this is no dict or has none. The last of equal keys counts.
  [[nodiscard]] PickleRef find(PickleRef dict, std::string_view key) const;
};

/// How much a file may hold.
struct PickleLimits {
  size_t max_values = 2'000'000;
  size_t max_text_bytes = 4096;  ///< of one string
};

/// Reads a file; long bytes stay in it. Errors: kInvalidData with file and byte; kUnimplemented for
/// a name or an opcode that the reader does not know; kResource above a limit; kIo.
StatusOr<Pickle> read_pickle(const ReadableFile& file, const PickleLimits& limits = {});

}  // namespace millrace::io
