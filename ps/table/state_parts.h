#pragma once

/// The parts of a sparse table's state (SparseTable::state()), by which snapshots name them.
namespace millrace::ps {

inline constexpr const char* kKeysPart = "keys";                     ///< i64 [n]
inline constexpr const char* kRowsPart = "rows";                     ///< f32 [n, floats of a row]
inline constexpr const char* kWaitingKeysPart = "waiting_keys";      ///< not admitted yet; i64 [w]
inline constexpr const char* kWaitingCountsPart = "waiting_counts";  ///< their accesses; f32 [w]
inline constexpr const char* kDrawsPart = "draws";  ///< random numbers drawn; i64 [parts]

}  // namespace millrace::ps
