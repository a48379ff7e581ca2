#pragma once

#include <cstdint>

namespace millrace::ps {

/// The epoch of a server is in every call and every answer. Its upper half is the term: of all
/// processes that ever serve as one server of a job, each has a higher term than those before it
/// (where snapshots or a directory order them; otherwise the term is 1). Its lower half is the run,
/// never 0, which changes when the server goes back to a snapshot, and which differs between
/// processes that nothing orders.
inline constexpr int kRunBits = 32;

/// The epoch of a run in a term.
inline uint64_t make_epoch(uint64_t term, uint64_t run) {
  return term << kRunBits | (run & 0xffffffffU);
}
inline uint64_t term_of(uint64_t epoch) {
  return epoch >> kRunBits;
}
/// What a call names that is meant for any run of this term or a later one, such as a hello.
inline uint64_t any_run_of(uint64_t epoch) {
  return make_epoch(term_of(epoch), 0);
}
/// False for 0 and for the result of any_run_of().
inline bool names_run(uint64_t epoch) {
  return (epoch & 0xffffffffU) != 0;
}

}  // namespace millrace::ps
