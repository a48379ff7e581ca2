#pragma once

/// Words in calls that clients and servers agree on.
namespace millrace::ps {

/// Behind names that are got in any phase.
inline constexpr const char* kWithoutBarrier = "@WITHOUT_BARRIER@RECV";
/// Request::text of a get: only the rows that changed since the caller's last get.
inline constexpr const char* kChangedRows = "changed";
/// Request::text of a send: the values become those of the vars.
inline constexpr const char* kSetValues = "set";

/// Request::text of a pull whose accesses count, once however often it is repeated, and of one
/// whose accesses do not count.
inline constexpr const char* kCountedPull = "count";
inline constexpr const char* kQuietPull = "infer";

/// Request::text of a checkpoint request: the typed table `number` is saved to the folder that item
/// 0 names, in the mode that item 1 names, in place of what is there if there is an item kReplaces;
/// it is loaded from there; nothing is done, and the reply's number says how many tables were
/// loaded since the server began.
inline constexpr const char* kSaveTable = "@SAVE_TABLE@";
inline constexpr const char* kLoadTable = "@LOAD_TABLE@";
inline constexpr const char* kCountLoaded = "@COUNT_LOADED@";
inline constexpr const char* kReplaces = "replace";

/// Request::number of a hello: the trainer has fetched what it needs for its step. Its text is the
/// number of the trainer's send barriers that have been answered.
inline constexpr int kHasFetched = 1;
/// Last word of the answer to a hello: the trainer takes the place of a lost one.
inline constexpr int kJoins = 1;
/// The same: others went back to an older step, and so has the trainer.
inline constexpr int kMustSettle = 2;

}  // namespace millrace::ps
