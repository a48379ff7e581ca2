#pragma once

/// Names of the tensors of a sparse table's state (SparseTable::state()) in snapshots.
namespace millrace::ps {

inline constexpr const char* kKeysPart = "keys";                 ///< i64 [n]
inline constexpr const char* kRowsPart = "rows";                 ///< f32 [n, floats of a row]
inline constexpr const char* kWaitingKeysPart = "waiting_keys";  ///< keys not admitted yet; i64 [w]
inline constexpr const char* kWaitingCountsPart = "waiting_counts";  ///< their accesses; f32 [w]
inline constexpr const char* kDrawsPart = "draws";  ///< random draws made; i64 [partitions]

}  // namespace millrace::ps
