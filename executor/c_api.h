#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The C interface: programs and saved models (see executor/session.h).
 *
 * Functions that can fail return 0, or the exit code of the tools for such an error: 2 a null
 * pointer where none is allowed, 3 bad input, 4 an op failed, 6 no memory or no disk, 7
 * unsupported, 70 a bug of millrace. They write the message, truncated to error_size bytes
 * including the final zero, to error, which may be null. None lets a C++ exception pass.
 * Thread-safety: one call at a time on a session; any number of sessions.
 */
#ifdef __cplusplus
extern "C" {
#endif

/* A program and its variables. */
typedef struct mr_session mr_session;

/* Element types; the numbers are those of the program format. */
typedef enum mr_dtype {
  MR_BOOL = 0,
  MR_INT16 = 1,
  MR_INT32 = 2,
  MR_INT64 = 3,
  MR_FLOAT16 = 4,
  MR_FLOAT32 = 5,
  MR_FLOAT64 = 6,
  MR_UINT8 = 20,
  MR_INT8 = 21,
  MR_BFLOAT16 = 22
} mr_dtype;

/*
 * A dense array in row-major order that does not own its memory. Sequence boundaries (LoD) are not
 * part of it: feeds have none, and those of results are left out.
 */
typedef struct mr_array {
  const char* name;    /* of the var */
  int32_t dtype;       /* an mr_dtype */
  int32_t rank;        /* number of dims */
  const int64_t* dims; /* rank extents */
  const void* data;    /* elements in native byte order */
  size_t bytes;        /* size of data */
} mr_array;

/* Opens an inference model folder. threads: that a run may use, at least 1. */
int mr_open_model(const char* folder, int threads, mr_session** session, char* error,
                  size_t error_size);
/* Opens a program file and runs a startup program file (null: none) once. */
int mr_open_program(const char* program, const char* startup, int threads, mr_session** session,
                    char* error, size_t error_size);
/* The same on a device: "cpu", or "gpu:N" for the GPU with number N. Error 7 if it is not there. */
int mr_open_model_on(const char* device, const char* folder, int threads, mr_session** session,
                     char* error, size_t error_size);
int mr_open_program_on(const char* device, const char* program, const char* startup, int threads,
                       mr_session** session, char* error, size_t error_size);
/* Frees a session and the arrays it returned; null is allowed. */
void mr_close(mr_session* session);

/* Input and output names of a saved model, by index from 0; null after the last, and without a
 * session. */
const char* mr_input_name(const mr_session* session, size_t index);
const char* mr_output_name(const mr_session* session, size_t index);

/*
 * Runs the program once. results receives fetch_count arrays in the order of fetches; they are
 * owned by the session and valid until its next run. If fetches is null: the first fetch_count
 * outputs of the model. Error 3 for a feed that the program does not have, whose name another feed
 * has, or whose bytes do not fit its dims, error 6 for one above the limit of a tensor.
 */
int mr_run(mr_session* session, const mr_array* feeds, size_t feed_count,
           const char* const* fetches, size_t fetch_count, mr_array* results, char* error,
           size_t error_size);

/*
 * Reads or writes the persistable vars: a folder (a path that ends in '/') or a combined file.
 * Reads npz as well; error 3 for an archive that lacks vars.
 */
int mr_load_params(mr_session* session, const char* path, char* error, size_t error_size);
int mr_save_params(const mr_session* session, const char* path, char* error, size_t error_size);

#ifdef __cplusplus
}
#endif
