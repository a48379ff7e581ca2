/*
 * Runs a saved inference model on one row of ones, from C.
 *   infer_c MODEL_FOLDER COLUMNS
 */

#include <stdio.h>
#include <stdlib.h>

#include <millrace/executor/c_api.h>

int main(int argc, char** argv) {
  char error[1024];
  mr_session* session = NULL;
  mr_array result;
  if (argc != 3) {
    fprintf(stderr, "usage: infer_c MODEL_FOLDER COLUMNS\n");
    return 2;
  }
  int code = mr_open_model(argv[1], 1, &session, error, sizeof error);
  if (code == 0) {
    const int64_t dims[2] = {1, atoll(argv[2])};
    float* ones = malloc((size_t)dims[1] * sizeof(float));
    for (int64_t i = 0; i < dims[1]; ++i) ones[i] = 1.0F;
    const mr_array feed = {mr_input_name(session, 0), MR_FLOAT32,           2, dims,
                           ones,                      (size_t)dims[1] * sizeof(float)};
    code = mr_run(session, &feed, 1, NULL, 1, &result, error, sizeof error);
    if (code == 0) printf("%s: %g\n", result.name, ((const float*)result.data)[0]);
    free(ones);
  }
  if (code != 0) fprintf(stderr, "%s\n", error);
  mr_close(session);
  return code;
}
