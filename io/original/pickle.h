#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"

/// A restricted reader for the small part of Python's pickle format (protocol 4) that the original
/// uses for distributed checkpoints. It resolves no names, imports nothing and calls nothing: the
/// few names it knows are values of an enum; any other name or opcode is an error.
namespace millrace::io {

/// The names that may occur in such a file.
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
/// A bytes object that is not loaded but stays in the file.
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
/// An object created from a name and its arguments; `state` is -1 if it has none.
struct PickleObject {
  PickleName name = PickleName::kMetadata;
  PickleRef arguments = -1;
  PickleRef state = -1;
};

using PickleValue = std::variant<PickleNone, bool, int64_t, std::string, PickleBytes, PickleTuple,
                                 PickleList, PickleDict, PickleName, PickleObject>;

/// Content of a file. Values may be shared, and in a hostile file a value may contain itself, so
/// callers must not recurse freely but follow a fixed structure only.
struct Pickle {
  std::vector<PickleValue> values;
  PickleRef root = 0;

  /// The value as T; null if the reference is -1 or the value is something else.
  template <typename T>
  [[nodiscard]] const T* get(PickleRef ref) const {
    return ref < 0 ? nullptr : std::get_if<T>(&values[static_cast<size_t>(ref)]);
  }
  /// The value of a string key; -1 if this is not a dict or does not have the key. The last of
  /// several equal keys counts.
  [[nodiscard]] PickleRef find(PickleRef dict, std::string_view key) const;
};

/// Limits of a file.
struct PickleLimits {
  size_t max_values = 2'000'000;
  size_t max_text_bytes = 4096;  ///< maximum length of one string
};

/// Reads a file; long bytes objects stay in the file. Errors: kInvalidData with file and byte
/// offset; kUnimplemented for a name or an opcode that the reader does not support; kResource above
/// a limit; kIo.
StatusOr<Pickle> read_pickle(const ReadableFile& file, const PickleLimits& limits = {});

}  // namespace millrace::io
