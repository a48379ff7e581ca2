#pragma once

namespace millrace::kernels {

/// Logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ...
double log_gamma(double x);
/// Derivative of log_gamma(); NaN at 0, -1, -2, ... Relative error about 1e-14 away from its zeros.
double digamma(double x);
/// Derivative of digamma(); infinite at 0, -1, -2, ...
double trigamma(double x);

}  // namespace millrace::kernels
