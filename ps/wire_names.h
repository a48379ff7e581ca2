#pragma once

/// Strings and numbers in calls on which clients and servers agree.
namespace millrace::ps {

/// Suffix of var names that may be fetched in any phase, without waiting for a barrier.
inline constexpr const char* kWithoutBarrier = "@WITHOUT_BARRIER@RECV";
/// Request::text of a get: only the rows that changed since the caller's last get.
inline constexpr const char* kChangedRows = "changed";
/// Request::text of a send: the values replace those of the server's vars.
inline constexpr const char* kSetValues = "set";

/// Request::text of a pull. kCountedPull: its accesses are counted, once however often the call is
/// repeated. kQuietPull: its accesses are not counted.
inline constexpr const char* kCountedPull = "count";
inline constexpr const char* kQuietPull = "infer";

/// Request::text of a checkpoint request for the typed table `number`. kSaveTable: saves it to the
/// folder that item 0 names, in the mode that item 1 names; with an item kReplaces, an existing
/// folder is replaced. kLoadTable: loads it from that folder. kCountLoaded: does nothing; the
/// reply's number is the number of tables loaded since the server started.
inline constexpr const char* kSaveTable = "@SAVE_TABLE@";
inline constexpr const char* kLoadTable = "@LOAD_TABLE@";
inline constexpr const char* kCountLoaded = "@COUNT_LOADED@";
inline constexpr const char* kReplaces = "replace";

/// Request::number of a hello: the trainer has fetched all parameters that it needs for its step.
/// Request::text is the number of the trainer's send barriers that the server has answered.
inline constexpr int kHasFetched = 1;
/// Last word of the response to a hello: the trainer replaces a lost one.
inline constexpr int kJoins = 1;
/// Last word of the response to a hello: other trainers went back to an older step, and this one
/// must do so, too.
inline constexpr int kMustSettle = 2;

}  // namespace millrace::ps
