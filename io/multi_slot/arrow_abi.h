#pragma once

// The three structs of the Arrow C data interface and the Arrow C stream interface. Their names,
// members and order are fixed by that standard, and so are the names of the guards: a program that
// also includes the header of an Arrow library gets one definition.

#include <cstdint>

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

extern "C" {

/// The type of a column. A struct whose `release` is null has been released.
struct ArrowSchema {
  const char* format;    ///< its type: "l" is int64, "u" text, "+s" a struct
  const char* name;      ///< may be null
  const char* metadata;  ///< not read here
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;  ///< type of the values, if `format` is that of indices
  void (*release)(ArrowSchema*);
  void* private_data;
};

/// The values of a column; which buffers it has depends on its type.
struct ArrowArray {
  int64_t length;
  int64_t null_count;  ///< -1: not counted
  int64_t offset;      ///< elements of the buffers before the first value
  int64_t n_buffers;
  int64_t n_children;
  const void**
      buffers;  ///< the first one has a bit per value, 0 for null; it may be a null pointer
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

}  // extern "C"
#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

extern "C" {

/// Arrays of one type, one after the other. Functions return 0 or a number of errno.
struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* out);
  int (*get_next)(ArrowArrayStream*, ArrowArray* out);  ///< released at the end
  const char* (*get_last_error)(ArrowArrayStream*);     ///< null: there is no message
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

}  // extern "C"
#endif  // ARROW_C_STREAM_INTERFACE
